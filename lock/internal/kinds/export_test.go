package kinds

// LineScript is the text that the scripts of kinds with a line have in common.
var LineScript = allLine
