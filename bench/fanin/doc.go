// Package fanin measures subscriptions: one process has very many of them, another publishes at a steady rate, and what is
// asked for is how long a message takes and what it costs.
package fanin
