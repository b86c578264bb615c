// Package report keeps what was measured, and makes of it tables, charts and the comparison with the goals.
package report
