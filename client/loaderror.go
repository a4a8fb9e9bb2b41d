// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-shelf/shelf/stampede"
)

// loadError is the error of a load that brought no answer for a reason that is not its loader's error. It says whose load that was.
type loadError struct {
	text string
	err  error
}

func (e *loadError) Error() string { return e.text }
func (e *loadError) Unwrap() error { return e.err }

// ourNames says how the settings that the limiter's errors name are called here.
var ourNames = strings.NewReplacer("(Max)", "(Config.MaxLoads)", "(Queue)", "(Config.LoadQueue)", "(QueueTimeout)", "(Config.LoadQueueTimeout)")

// explain names the cache, the keys and the setting in the error of a load that did not begin or did not return. A loader's own error stays as it is;
// so does what it passes on of another cache, which is named in it already.
func (c *Cache[V]) explain(err error, keys ...string) error {
	said := ""
	switch panicked, _ := err.(*PanicError); { //nolint:errorlint // its own panic, not one that the loader's error wraps
	case err == nil:
		return nil
	case panicked != nil:
		said = fmt.Sprintf("the loader panicked: %v", panicked.Value)
	case err == ErrGoexit: //nolint:errorlint // as above
		said = "the loader called runtime.Goexit"
	case errors.Unwrap(err) == ErrLoadTimeout: //nolint:errorlint // as above
		said = fmt.Sprintf("the load took too long (CacheConfig.LoadTimeout %v)", c.cfg.LoadTimeout)
	case errors.Unwrap(err) == stampede.ErrOverloaded: //nolint:errorlint // as above
		said = ourNames.Replace(strings.TrimPrefix(err.Error(), "shelf: "))
	default:
		return err
	}
	whose := fmt.Sprintf("%d keys", len(keys))
	if len(keys) == 1 {
		whose = "key " + shortKey(keys[0])
	}
	return &loadError{fmt.Sprintf("shelf: cache %s, %s: %s", c.cfg.Name, whose, said), err}
}
