// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package meter

import (
	"runtime"
	"time"
)

// usage is what the process has used up to now.
type usage struct {
	cpu, kernel    time.Duration
	mallocs, bytes uint64
}

func read() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{mallocs: m.Mallocs, bytes: m.TotalAlloc}
	u.cpu, u.kernel = processCPU()
	return u
}

func (u usage) since(before usage, s *Slot) {
	s.CPU, s.Kernel, s.Mallocs, s.Bytes = u.cpu-before.cpu, u.kernel-before.kernel, u.mallocs-before.mallocs, u.bytes-before.bytes
}
