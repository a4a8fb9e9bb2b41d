// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package skew runs processes whose wall clock is wrong, for tests of what must not depend on it.
//
// No privilege and no other host is needed for that. [Build] builds a program with a standard library in which time.Now adds an offset to the
// wall clock, and only to that: the monotonic reading is left alone, as it is when an operator or NTP sets a clock. The changed source of package
// time is made from the installed one at every build (go build -overlay); if the place to change is not found there, the build fails and
// says so. The offset is in the process's environment ([Env]), where the process can change it while it runs ([Step]): then its clock is set.
//
// [Start] runs such a program (wrongclock is the one there is) and gives it orders, one line of JSON each, which it answers with reports.
package skew
