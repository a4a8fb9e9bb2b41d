// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package integration runs the client's behaviour (internal/suite of the root module) on every kind of node that is supported: redis-server processes,
// embedded nodes, and redis:7, redis:8 and valkey/valkey:8 in containers. It is a module of its own, since what drives a container engine is heavy.
//
//	make integration
//
// prints a table of behaviours and engines at its end. It needs a Docker engine on this machine, and the images or a way to pull them; without, the
// container engines are reported as not run, with the reason, and that is no failure: the others run all the same.
//
// Servers listen on 127.0.0.1 only. Each container is removed when the test that asked for it ends, also when that test has failed. The reaper of
// testcontainers-go is switched off (it is one more image to pull) unless TESTCONTAINERS_RYUK_DISABLED says otherwise; what a killed test run leaves
// behind carries the label shelf.integration:
//
//	docker rm -f $(docker ps -aq --filter label=shelf.integration)
package integration
