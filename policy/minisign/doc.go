// Package minisign verifies signatures in the format of the minisign program
// (https://jedisct1.github.io/minisign/, "Signature format"), both the prehashed
// form, which is what minisign 0.10 and later make, and the older one of the whole
// text. It makes none and touches no file.
//
// What it promises: a text is accepted only if one of the given keys made the
// signature of it and the signature of the trusted comment; anything else, also
// text around a signature that minisign would not write, is an error. What it does
// not know is when a signature was made: a trusted comment is the signer's word.
package minisign
