// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build !linux

package proc

// awaitExit leaves the waiting to Wait.
func awaitExit(int) {}

// ephemeralPorts is the range of most systems.
func ephemeralPorts() (low, high int) { return defaultEphemeralLow, defaultEphemeralHigh }
