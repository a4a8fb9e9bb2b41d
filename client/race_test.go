// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build race

package client_test

// slowdown is what the race detector takes, at most, in code that computes.
const slowdown = 10
