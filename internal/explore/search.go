// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// model is a scene that is being explored, breadth first.
type model struct {
	scene
	scripts

	chunks  [][]state // all states; in chunks, so that no growth copies them
	count   int
	from    []int32 // the state that each was first reached from
	table   []int32 // states by hash, open addressing; 0: free, else the index plus one
	seed    maphash.Seed
	current int // the state whose steps are taken

	ends int      // quiet states
	bad  int      // quiet states with something old in them, and promises broken on the way
	way  []string // the shortest to the first of them

	// While a way is told, only the step to that state is looked for.
	wanted *state
	told   string
}

// explore walks over all states or, with one, until the first bad one. Beyond limit states it gives up.
func (c scene) explore(one bool, limit int) (*model, error) {
	m := &model{scene: c, seed: maphash.MakeSeed(), table: make([]int32, 1<<12)}
	m.scripts = scripts{of: &m.scene.rules, known: make(map[onShelf]outcome)}
	m.current = -1
	m.step(c.start(), "", 0, 0)
	for i := 0; i < m.count && !(one && m.bad > 0); i++ {
		m.look(i)
		m.steps(i)
		if m.count > limit {
			return m, fmt.Errorf("%s: more than %d states", c.name, limit)
		}
	}
	return m, nil
}

// look judges a state.
func (m *model) look(i int) {
	s := m.state(i)
	quiet := s.broken == none && m.quiet(s)
	if quiet {
		m.ends++
	}
	if s.broken == none && !(quiet && m.stale(s)) {
		return
	}
	m.bad++
	if m.bad > 1 {
		return
	}
	m.way = m.tell(i)
	if s.broken != none {
		m.way = append(m.way, s.broken.String())
	}
}

// steps takes all steps that are possible in a state. What is broken goes no further.
func (m *model) steps(i int) {
	s := *m.state(i)
	if s.broken != none {
		return
	}
	m.current = i
	for c := range s.client {
		m.read(&s, c)
		m.join(&s, c)
		m.write(&s, c)
		m.work(&s, c)
	}
	m.events(&s)
}

// step is one step from the current state, which leads to s. text may name a client and a version.
func (m *model) step(s state, text string, c int, v uint8) {
	if m.wanted != nil {
		if m.told == "" && s == *m.wanted {
			m.told = fmt.Sprintf(text+"%[3]s", c, v, "")
		}
		return
	}
	if m.count*2 >= len(m.table) {
		m.grow()
	}
	at := m.place(&s)
	if m.table[at] != 0 {
		return
	}
	if m.count%chunk == 0 {
		m.chunks = append(m.chunks, make([]state, chunk))
	}
	m.count++
	*m.state(m.count - 1) = s
	m.from = append(m.from, int32(m.current))
	m.table[at] = int32(m.count)
}

const chunk = 1 << 12

func (m *model) state(i int) *state { return &m.chunks[i/chunk][i%chunk] }

// place is where s stands in the table, or would.
func (m *model) place(s *state) int {
	at := int(maphash.Comparable(m.seed, *s)) & (len(m.table) - 1)
	for m.table[at] != 0 && *m.state(int(m.table[at] - 1)) != *s {
		at = (at + 1) & (len(m.table) - 1)
	}
	return at
}

func (m *model) grow() {
	m.table = make([]int32, 2*len(m.table))
	for i := range m.count {
		m.table[m.place(m.state(i))] = int32(i + 1)
	}
}

// tell describes the way to a state.
func (m *model) tell(i int) (way []string) {
	current := m.current
	for ; m.from[i] >= 0; i = int(m.from[i]) {
		m.wanted, m.told = m.state(i), ""
		m.steps(int(m.from[i]))
		way = append(way, m.told)
	}
	m.wanted, m.current = nil, current
	slices.Reverse(way)
	return way
}
