package conn

type contextKey uint8

// NoTryAgain is the key of a context value. With the value true, a cluster returns TRYAGAIN to its caller at once, for
// callers that then send a command for each key: single keys are available while their slot migrates.
const NoTryAgain contextKey = 0

// Leaves is the key of a context value, a time.Time: the time from which the caller no longer needs the answer. It may
// differ from the context's deadline. A Pool does not send a batch with WAIT if recent batches took longer than
// the time left, and another caller waits for a connection. The call then waits for the end of its context, and the
// error is ErrNotSent.
const Leaves contextKey = 1

// EverySentinel is the key of a context value. With the value true, [Pool.Succession] asks all known sentinels at once,
// and returns the replicas of all answers within 250 ms of the first. Without it, the first answer is enough, though a
// sentinel may learn of a new replica ten seconds after another sentinel, which may already promote the replica.
const EverySentinel contextKey = 2

// NoRepeat is the key of a context value. With the value true, a cluster returns the refusal of a command to its caller
// at once, in a batch as the reply. The cluster notes what the refusal says of the topology, but follows no redirection
// and waits for no node. So in a batch, commands do not wait for a redirection to a node that hangs.
const NoRepeat contextKey = 3

// Whole is the key of a context value. With the value true, a Pool repeats a batch as a whole or not at all. So all replies are those of one
// process, and the reply to INFO describes it.
const Whole contextKey = 4
