package conn

// hangUps is empty: Plan 9 has no error numbers for a connection closed by the peer.
var hangUps []error
