// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// parseCommands reads commands as clients send them, arrays of bulk strings, or
// words on a line, and returns the complete ones and how many bytes they took.
// See https://redis.io/docs/latest/develop/reference/protocol-spec/.
func parseCommands(stream []byte) (commands [][]string, used int, err error) {
	for {
		args, n, err := parseCommand(stream[used:])
		if err != nil || n == 0 {
			return commands, used, err
		}
		used += n
		if len(args) > 0 { // an empty line or array is no command
			commands = append(commands, args)
		}
	}
}

// parseCommand reads one command; zero bytes mean that it is not complete.
func parseCommand(b []byte) (args []string, used int, err error) {
	line, used := parseLine(b)
	if used == 0 || line == "" {
		return nil, used, nil
	}
	if line[0] != '*' {
		if c := line[0] | 0x20; c < 'a' || c > 'z' {
			return nil, 0, fmt.Errorf("%.40q is not the beginning of a command", line)
		}
		return strings.Fields(line), used, nil
	}
	count, err := parseLength(line, '*')
	if err != nil {
		return nil, 0, err
	}
	for range count {
		line, n := parseLine(b[used:])
		if n == 0 {
			return nil, 0, nil
		}
		size, err := parseLength(line, '$')
		if err != nil {
			return nil, 0, err
		}
		used += n
		if len(b) < used+size+len("\r\n") {
			return nil, 0, nil
		}
		args = append(args, string(b[used:used+size]))
		used += size + len("\r\n")
	}
	return args, used, nil
}

// parseLine returns the line without its end; zero bytes mean that it has none.
func parseLine(b []byte) (line string, used int) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return "", 0
	}
	return strings.TrimSuffix(string(b[:i]), "\r"), i + 1
}

func parseLength(line string, sign byte) (int, error) {
	if line == "" || line[0] != sign {
		return 0, fmt.Errorf("%.40q in a command, want %c and a length", line, sign)
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > 512<<20 {
		return 0, fmt.Errorf("%.40q in a command: not a length between 0 and 512 MiB", line)
	}
	return n, nil
}

// beginsWith reports whether the arguments begin with the words, in any case.
func beginsWith(args, words []string) bool {
	if len(args) < len(words) {
		return false
	}
	for i, w := range words {
		if !strings.EqualFold(args[i], w) {
			return false
		}
	}
	return true
}
