// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const (
	// answerTimeout is how long a Docker engine may take to say that it is there.
	answerTimeout = 10 * time.Second
	// pullTimeout bounds the pulling of all images together.
	pullTimeout = time.Minute
)

// available says, for each image, why it cannot be run here; nil where it can. Images that are not here are pulled, all at once.
func available(images ...string) map[string]error {
	missing := make(map[string]error)
	engine, err := docker()
	if err != nil {
		for _, image := range images {
			missing[image] = err
		}
		return missing
	}
	defer engine.Close() //nolint:errcheck // nothing to lose
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, image := range images {
		wg.Go(func() {
			err := ensure(ctx, engine.Client(), image)
			mu.Lock()
			defer mu.Unlock()
			missing[image] = err
		})
	}
	wg.Wait()
	return missing
}

// ensure pulls an image that is not here. It tries once: a registry that cannot be reached now is not waited for.
func ensure(ctx context.Context, engine client.APIClient, image string) error {
	if _, err := engine.ImageInspect(ctx, image); err == nil {
		return nil
	}
	progress, err := engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		_, err = io.Copy(io.Discard, progress) // it is pulled when that has ended
		err = errors.Join(err, progress.Close())
	}
	if err == nil {
		_, err = engine.ImageInspect(ctx, image)
	}
	if err != nil {
		return fmt.Errorf("%s is not on this machine and could not be pulled within %v (docker pull %s): %w", image, pullTimeout, image, err)
	}
	return nil
}

// docker is the Docker engine of this machine.
func docker() (engine *testcontainers.DockerProvider, err error) {
	defer func() { // testcontainers-go panics where it finds no address of an engine
		if p := recover(); p != nil {
			err = fmt.Errorf("no Docker engine: %v", p)
		}
	}()
	if os.Getenv("TESTCONTAINERS_RYUK_DISABLED") == "" { // see the package comment; read when the first engine is asked for
		if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
			return nil, err
		}
	}
	engine, err = testcontainers.NewDockerProvider(testcontainers.WithLogger(silent{}))
	if err != nil {
		return nil, fmt.Errorf("no Docker engine: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	if err := engine.Health(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("no Docker engine answers: %w", err), engine.Close())
	}
	return engine, nil
}

// silent is the log of a library that has nothing to say but its results.
type silent struct{}

func (silent) Printf(string, ...any) {}
