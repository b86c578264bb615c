package leader

// The sources of the scripts, for a comparison with their Go functions.
var PublishSource, WithdrawSource = publishSource, withdrawSource
