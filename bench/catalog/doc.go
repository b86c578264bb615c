// Package catalog lists the measurements: the cases, the contenders of each case, and the numbers shown.
package catalog
