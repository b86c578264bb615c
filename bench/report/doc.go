// Package report keeps the results, and turns them into tables, charts and the comparison with the goals.
package report
