// Numbers as people read them.

const KIB = 1024;
const MIB = KIB * 1024;
const GIB = MIB * 1024;

function count(number) {
  return number.toLocaleString("en-US");
}

function fixed(number, decimals) {
  return number.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** The unit in which bytes up to `most` are written, so that all of a column or chart have the same. */
function byteScale(most) {
  if (most >= GIB) return { name: "GiB", bytes: GIB, decimals: most < 10 * GIB ? 3 : 2 };
  if (most >= MIB) return { name: "MiB", bytes: MIB, decimals: most < 10 * MIB ? 2 : 1 };
  if (most >= KIB) return { name: "KiB", bytes: KIB, decimals: 1 };
  return { name: "B", bytes: 1, decimals: 0 };
}

function bytesIn(scale, bytes) {
  return fixed(bytes / scale.bytes, scale.decimals);
}

function bytesText(bytes, scale = byteScale(bytes)) {
  return `${bytesIn(scale, bytes)} ${scale.name}`;
}

/** Least and most, once if they read the same. */
function spanText(least, most, scale) {
  const texts = [bytesIn(scale, least), bytesIn(scale, most)];
  return `${texts[0] === texts[1] ? texts[0] : texts.join("–")} ${scale.name}`;
}

function percent(share) {
  if (share >= 1) return "100 %";
  return `${fixed(Math.min(share * 100, 99.9), share > 0.1 ? 1 : 2)} %`;
}

/** How the numbers of one column are written: what stands in the cells, and what in the heading. */
function notation(unit, numbers) {
  const most = Math.max(0, ...numbers);
  switch (unit) {
    case "bytes": {
      const scale = byteScale(most);
      return { name: scale.name, write: (number) => bytesIn(scale, number) };
    }
    case "ratio":
      return { name: "", write: (number) => fixed(number, 3) };
    case "ns":
      return { name: "ns", write: (number) => fixed(number, most < 100 ? 1 : 0) };
    case "ms":
      // Little beside much is still something.
      return { name: "ms", write: (number) => fixed(number, most < 10 ? 2 : number > 0 && number < 0.1 ? 3 : 1) };
    default:
      return { name: "", write: count };
  }
}

/** The least of some numbers, if that is what counts as best and there is something to be better than. */
function bestOf(numbers, better) {
  const known = numbers.filter((number) => typeof number === "number");
  return better === "less" && known.length > 1 ? Math.min(...known) : undefined;
}
