// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey_test

import (
	"fmt"
	"time"

	"github.com/go-shelf/shelf/hotkey"
)

// A service counts each read and treats the hot keys differently. The times are invented here; a service passes
// time.Now().
func Example() {
	detector, err := hotkey.New(hotkey.Config{Enter: 100, HalfLife: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	for i := range 5000 { // five seconds
		now = now.Add(time.Millisecond)
		if i%2 == 0 {
			detector.Observe("front page", now)
		}
		if i%50 == 0 {
			detector.Observe("imprint", now)
		}
	}
	fmt.Println("front page:", detector.Hot("front page", now))
	fmt.Println("imprint:", detector.Hot("imprint", now))
	for _, k := range detector.Top(1, now) {
		fmt.Printf("%s: about %.0f00 reads a second\n", k.Key, k.Rate/100)
	}
	fmt.Println("a minute later:", detector.Hot("front page", now.Add(time.Minute)))
	// Output:
	// front page: true
	// imprint: false
	// front page: about 500 reads a second
	// a minute later: false
}
