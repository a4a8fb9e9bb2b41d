// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build !race

package client_test

// slowdown is what the race detector would take.
const slowdown = 1
