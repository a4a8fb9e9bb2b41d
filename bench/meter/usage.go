// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package meter

import (
	"runtime"
	"time"
)

// usage is what the process has used up to now.
type usage struct {
	cpu            time.Duration
	mallocs, bytes uint64
}

func read() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpu: processCPU(), mallocs: m.Mallocs, bytes: m.TotalAlloc}
}

func (u usage) since(before usage, s *Slot) {
	s.CPU, s.Mallocs, s.Bytes = u.cpu-before.cpu, u.mallocs-before.mallocs, u.bytes-before.bytes
}
