// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package suite is the client's behaviour as one list that any engine can run: redis-server processes, the embedded nodes of clienttest, and, in
// the module integration, Redis and Valkey in containers.
//
//	report := suite.Run(t, suite.Processes())
//	fmt.Print(suite.Table(report))
//
// A behaviour uses the public façade only, and the bare driver to look at a node or to disturb it. What holds on one engine must hold on all. Where
// an engine cannot do what a behaviour needs (an embedded node has no users), the behaviour is "not here" on it, with the reason that the engine
// states in [Engine.Lacks]; that what it states is true, in both directions, is a behaviour of its own. The result for the two engines of this module is
// written down in testdata/behaviours.txt, and a test compares it: so what differs is known.
//
// To add a behaviour, add a line to one of the lists (reading, writing, ...; or a list of its own to all) and its function:
//
//	{name: "a cleared cache is empty", test: clearEmpties},
//
//	func clearEmpties(s *scene) {
//		c := open(s, plain(s, newSource(row{Text: "a"}).load))
//		...
//	}
//
// Then run go test ./internal/suite -update. The names of the behaviours are what make integration prints: say what holds, not what is called.
package suite
