package kinds

// LineScript is the common text of the scripts of kinds with a line.
var LineScript = allLine

// LeaveScript is the common text of the scripts that take holds of a reader away.
var LeaveScript = readLeave

// ValuesScript is the common text of the scripts that give several values back.
var ValuesScript = fasterMultiValues
