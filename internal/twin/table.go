// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package twin

// Table is the twin of what a server remembers for client tracking of one key: of up to eight clients, each with a fill
// connection that redirects its pushes to a listener. One bit is one client. See
// https://redis.io/docs/latest/develop/reference/client-side-caching/.
type Table struct {
	Read       uint8 // who has read the key since its last change
	NoFill     uint8 // whose fill connection the server has closed
	NoListener uint8 // whose listener the server has closed
}

// Get says that a client's fill connection reads the key, whether it is there or not.
func (t *Table) Get(client int) { t.Read |= 1 << client &^ t.NoFill }

// Change says that the key has changed, and returns who is told: once. A DEL of a missing key is no change.
func (t *Table) Change() (pushed uint8) {
	pushed = t.Read &^ t.NoListener
	t.Read = 0
	return pushed
}

// KillFill closes a client's fill connection: what it has read is forgotten, and nobody is told.
func (t *Table) KillFill(client int) { t.NoFill |= 1 << client; t.Read &^= 1 << client }

// KillListener closes a client's listener: its pushes go nowhere.
func (t *Table) KillListener(client int) { t.NoListener |= 1 << client }

// Connect gives a client two new connections.
func (t *Table) Connect(client int) {
	t.Read &^= 1 << client
	t.NoFill &^= 1 << client
	t.NoListener &^= 1 << client
}
