// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build unix && !linux

package proc_test

// threadID is not known here.
func threadID() int { return 0 }
