// Package fanin measures subscriptions: a process has very many subscriptions, a second process publishes at a steady rate, and
// the results are the delay and the cost of a message.
package fanin
