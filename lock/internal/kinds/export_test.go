package kinds

// LineScript is the common text of the scripts of kinds with a line.
var LineScript = allLine

// Texts are the texts that stand in several scripts, by their files.
var Texts = map[string]string{
	"all_late.lua": allLate, "all_repeat.lua": allRepeat, "all_undo.lua": allUndo, "all_unheld.lua": allUnheld, "all_change.lua": allChange,
	"all_number.lua": allNumber, "all_tell.lua": allTell, "all_line.lua": allLine, "reentrant_take.lua": reentrantTake,
	"reentrant_holder.lua": reentrantHolder, "fenced_draw.lua": fencedDraw, "fair_head.lua": fairHead, "fair_tell.lua": fairTell, "read_leave.lua": readLeave, "write_leave.lua": writeLeave, "fastermulti_values.lua": fasterMultiValues,
}
