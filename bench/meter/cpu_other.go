// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build !unix

package meter

import "time"

// processCPU is not known here.
func processCPU() (all, kernel time.Duration) { return 0, 0 }
