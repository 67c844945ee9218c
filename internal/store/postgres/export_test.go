package postgres

// Need is for the tests outside of the package, as is Needed.
type Need = need

// Needed are the relations of the schema with the rights that a node needs.
var Needed = needed
