// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import "github.com/go-shelf/shelf/internal/twin"

// quiet says that nothing is under way and nothing is left to be repeated.
func (m *model) quiet(s *state) bool {
	for i := range s.late {
		if s.late[i].what != nothing {
			return false
		}
	}
	t := s.primary.table
	if t.NoFill|t.NoListener != 0 {
		return false
	}
	for c := range s.client {
		k := &s.client[c]
		if k.reader.at != idle || k.joiner.at != idle || k.writer.at != idle || k.worker.at != idle || k.pushes != 0 || k.view.pushes != 0 || k.run != s.primary.run {
			return false
		}
		if k.outbox.In && !m.noRetry || k.log.At == twin.Void || k.later.Next != 0 {
			return false
		}
	}
	return true
}

// stale says whether some place would serve something that is not the row.
func (m *model) stale(s *state) bool {
	if m.usable(&s.primary.shelf) && s.primary.data != s.row {
		return true
	}
	for c := range s.client {
		if v := s.client[c].serves(&m.rules); v != 0 && v != s.row {
			return true
		}
	}
	return false
}
