// The number of a float16's 16 bits.
function float16(bits) {
  const power = bits >> 10 & 31, part = bits & 1023, size = power === 31 ? part ? NaN : Infinity
    : power ? 2 ** (power - 25) * (1024 + part) : 2 ** -24 * part;
  return bits >> 15 ? -size : size;
}
