// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Load is how busy a server has been in the last 1.6 s or so, by its own account: whoever its clients are.
type Load struct {
	Commands float64 // a second; a script is one
	Sent     float64 // bytes a second, to clients
}

// ErrNoLoad is returned for a server that does not say how busy it is, or may not be asked.
var ErrNoLoad = errors.New("redisnode: the server does not say how busy it is")

// Load asks the server how busy it is: INFO stats, some 3 us of the server's time. An embedded server is not asked (miniredis does not know, and panics when it is asked for these
// statistics while it is being closed), nor is one that has never answered.
func (n *Node) Load(ctx context.Context) (Load, error) {
	if e := n.Info().Engine; e != EngineRedis && e != EngineValkey {
		return Load{}, ErrNoLoad
	}
	return n.Session().load(ctx)
}

func (s *Session) load(ctx context.Context) (Load, error) {
	if err := s.begin(ctx, "INFO"); err != nil {
		return Load{}, err
	}
	defer s.leave()
	text, err := s.client.Info(ctx, "stats").Result()
	reply := redis.Error(nil)
	switch {
	case errors.As(err, &reply): // it was reached, and that is nobody's trouble
		return Load{}, ErrNoLoad
	case err != nil:
		return Load{}, s.failure(ctx, "INFO", err)
	}
	s.answered()
	return parseLoad(text)
}

// parseLoad reads the two lines of INFO stats. What the server calls kbps are units of 1,024 bytes.
func parseLoad(text string) (Load, error) {
	l, found := Load{}, 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v >= 0) {
			continue
		}
		switch name {
		case "instantaneous_ops_per_sec":
			l.Commands, found = v, found+1
		case "instantaneous_output_kbps":
			l.Sent, found = v*1024, found+1
		}
	}
	if found < 2 {
		return Load{}, ErrNoLoad
	}
	return l, nil
}
