package kinds

import (
	"embed"
	"regexp"
)

// LineScript is the common text of the scripts of kinds with a line.
var LineScript = read("all_line.lua", []embed.FS{allLua})

// Texts are the texts that stand in several scripts, by their files.
var Texts = texts(allLua, fairLua, fasterMultiLua, fencedLua, latchLua, nonReentrantLua, permitsLua, plainLua, readWriteLua, reentrantLua, semaphoreLua)

// texts returns the files that a line of a file in one of the folders names.
func texts(folders ...embed.FS) map[string]string {
	names := regexp.MustCompile(`(?m)^-- (\w+\.lua)$`)
	found := map[string]string{}
	for _, folder := range folders {
		files, _ := folder.ReadDir("lua")
		for _, file := range files {
			for _, text := range names.FindAllStringSubmatch(read(file.Name(), folders), -1) {
				found[text[1]] = read(text[1], folders)
			}
		}
	}
	return found
}
