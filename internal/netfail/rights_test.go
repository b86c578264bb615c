package netfail_test

import (
	"testing"

	"github.com/lockwire/lockwire/internal/netfail"
	"github.com/lockwire/lockwire/resp"
)

// The refusals of Redis 6 to 8 and of Valkey.
func TestDeniedInside(t *testing.T) {
	for text, want := range map[resp.Error]bool{
		"ERR The user executing the script can't run this command or subcommand script: 6cf5, on @user_script:1.":                                        true,
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 3629, on @user_script:1.":    true,
		"ERR ACL failure in script: User app has no permissions to run the 'pexpire' command script: 6cf5, on @user_script:1.":                           true,
		"NOPERM ACL failure in script: No permissions to access a key script: on @user_script:1.":                                                        true,
		"ERR Error running script (call to f_6cf5): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand": true,
		"ERR Error running script (call to f_6cf5): @user_script:1: @user_script: 1: WRONGTYPE Operation against a key":                                  false,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                                               false,
		"NOPERM this user has no permissions to run the 'script|load' command":                                                                           false,
		"OOM command not allowed when used memory > 'maxmemory'. script: 6cf5, on @user_script:1.":                                                       false,
	} {
		if got := netfail.DeniedInside(text); got != want {
			t.Errorf("DeniedInside(%s) = %v", text, got)
		}
		if netfail.DeniedInside(text) && !netfail.Denied(text) {
			t.Errorf("Denied(%s) = false", text)
		}
	}
}
