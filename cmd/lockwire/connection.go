package main

import (
	"context"
	"flag"
	"os"
	"strings"
	"time"

	"github.com/lockwire/lockwire"
	"github.com/lockwire/lockwire/cluster"
	"github.com/lockwire/lockwire/conn"
	"github.com/lockwire/lockwire/lock"
)

// connection has the flags for the address of the server.
type connection struct {
	url, urlFile, passwordFile string
	timeout                    time.Duration
}

func (c *connection) define(flags *flag.FlagSet) {
	flags.StringVar(&c.url, "url", "", "`URL` of the server, without a password; default: the environment variable REDIS_URL")
	flags.StringVar(&c.urlFile, "url-file", "", "`FILE` with the URL of the server in its first line")
	flags.StringVar(&c.passwordFile, "password-file", "", "`FILE` with the password in its first line")
	flags.DurationVar(&c.timeout, "connect-timeout", 5*time.Second, "longest `DURATION` of the connecting")
}

// connected returns an action that calls fn with an open client.
func connected(fn func(context.Context, *invocation, *lockwire.Client) error) action {
	return func(ctx context.Context, in *invocation) error {
		client, err := in.open(ctx, lock.Config{})
		if err != nil {
			return err
		}
		defer client.Close()
		return fn(ctx, in, client)
	}
}

// open connects to the server.
func (c *connection) open(ctx context.Context, locks lock.Config) (*lockwire.Client, error) {
	text, err := c.read()
	if err != nil {
		return nil, err
	}
	password := ""
	if c.passwordFile != "" {
		if password, err = firstLine(c.passwordFile); err != nil {
			return nil, err
		}
	}
	if err := checkURL(text); err != nil {
		return nil, &exitError{codeUsage, err}
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client, err := lockwire.Open(limited, text, lockwire.Config{Lock: locks, Conn: func(cfg *conn.Config) {
		if password != "" {
			cfg.Password = password
		}
		if cfg.ClientName == "" {
			cfg.ClientName = "lockwire-command"
		}
	}})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	return client, err
}

// read returns the URL of the server.
func (c *connection) read() (string, error) {
	switch {
	case c.url != "" && c.urlFile != "":
		return "", usageError("--url and --url-file exclude each other")
	case c.url != "":
		return c.url, checkNoPassword(c.url)
	case c.urlFile != "":
		return firstLine(c.urlFile)
	}
	if text := os.Getenv("REDIS_URL"); text != "" {
		return text, nil
	}
	return "", usageError("no server is named: set REDIS_URL=redis://host:6379, or use --url or --url-file")
}

// firstLine returns the first line of a file, without the spaces around it.
func firstLine(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", &exitError{codeUsage, err}
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", usageError("%s: the first line is empty", file)
	}
	return line, nil
}

// checkNoPassword refuses a password in a URL from the command line, readable for every user of the machine.
func checkNoPassword(text string) error {
	_, rest, _ := strings.Cut(text, "://")
	user := rest[:strings.LastIndexByte(rest, '@')+1]
	if strings.Contains(user, ":") || strings.Contains(text, "password=") {
		return usageError("--url may not have a password, since others can see the command line: " +
			"use REDIS_URL, --url-file or --password-file")
	}
	return nil
}

// checkURL returns the error of Open for the URL alone.
func checkURL(text string) (err error) {
	if scheme, _, _ := strings.Cut(text, ":"); strings.HasSuffix(strings.ToLower(scheme), "-cluster") {
		_, err = cluster.ParseURL(text)
	} else {
		_, err = conn.ParseURL(text)
	}
	return err
}
