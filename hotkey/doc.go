// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package hotkey says which keys are hot now, in memory that does not depend on how many keys there are.
//
// A read is counted in one of two places. Keys that may matter are tracked by name in a small table, with an exact
// decaying count each. All others share a sketch, a fixed array of decaying counters that never counts a key too low
// but may count it too high. A key whose sketched rate reaches an eighth of Config.Enter gets a name, taking the place
// of the weakest when the table is full. Whether it is hot is then decided by what was counted under its name and by
// nothing else:
//
//	cold key  -> sketch: an upper bound, good enough to say who deserves a name
//	named key -> table:  a lower bound, exact from the moment of naming, which says who is hot
//
// So a cold key is never called hot, however many cold keys there are: a small sketch or a small table can only make
// the detector miss a hot key or find it late.
//
// Rates decay with a half-life (see Config.HalfLife): a read counts half after one, a quarter after two. The package
// starts no goroutine and reads no clock; the time is an argument.
//
// The sketch is the count-min sketch of Cormode and Muthukrishnan (J. Algorithms 55, 2005) with the conservative
// update of Estan and Varghese (SIGCOMM 2002); a count with an upper bound on what was missed before it, and the
// weakest giving way, are from Space-Saving by Metwally, Agrawal and El Abbadi (ICDT 2005); the decaying rate is the
// one of tailscale.com/tstime/rate.Value, and decay by growing weights instead of shrinking counters is the forward
// decay of Cormode, Shkapenyuk, Srivastava and Xu (ICDE 2009).
package hotkey
