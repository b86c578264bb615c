package kinds

// LineScript is the common text of the scripts of kinds with a line.
var LineScript = allLine
