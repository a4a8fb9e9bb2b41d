// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"math"
	"time"
)

// Early decides whether a reader that found an entry of this age should refresh
// it now, before it falls due at age soft. It is the XFetch rule of Vattani,
// Chierichetti and Lowenstein, "Optimal Probabilistic Cache Stampede Prevention"
// (VLDB 2015): yes, if
//
//	age + cost * beta * -ln(u) >= soft
//
// with u uniform in (0, 1]. A single reader says yes at the distance g from
// soft with probability exp(-g / (cost*beta)); so refreshes start some load costs
// before the due time, the earlier the more readers there are, and it
// takes no agreement among them.
//
// cost is how long the entry took to load. beta is 1 for the paper's optimum;
// larger is earlier; 0 is never early. draw is uniform in [0, 1), as from
// rand.Float64. A negative age counts as 0, a negative cost or beta as 0. It is a
// pure function.
func Early(age, soft, cost time.Duration, beta, draw float64) bool {
	age = max(age, 0)
	if age >= soft {
		return true
	}
	if cost <= 0 || !(beta > 0) { // a NaN beta as well
		return false
	}
	u := 1 - draw // in (0, 1]: ln(0) would elect at any age
	if !(u > 0 && u <= 1) {
		return false
	}
	return float64(age)-float64(cost)*beta*math.Log(u) >= float64(soft)
}
