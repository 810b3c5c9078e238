#include "codecs/pickle/pickle.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tenfold/error.hpp>

#include "support/message_of.hpp"

namespace tenfold::codecs {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using testing::ElementsAre;

const fs::path kFolder = fs::path(TENFOLD_TEST_DATA) / "pickle";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return text.str();
}

std::vector<std::string> files(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(kFolder)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".pkl")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string hex(std::string_view text) {
  std::string out;
  for (const char byte : text) out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return out;
}

/// Formats a number like Python's float.hex(). The only subnormal number that this supports is the
/// smallest one.
std::string float_text(double value) {
  if (value != value || value - value != 0) return fmt::format("{}", value);
  if (value == 0) return std::signbit(value) ? "-0x0.0p+0" : "0x0.0p+0";
  if (std::abs(value) < 2.2250738585072014e-308) return "0x0.0000000000001p-1022";
  return fmt::format("{:.13a}", value);
}

/// Returns the value at `id` in the notation of tests/data/pickle/generate.py. Values nested deeper
/// than `depth` levels are "...".
std::string text_of(const PickleGraph& graph, std::uint32_t id, int depth = 6) {
  if (depth == 0) return "...";
  const PickleNode node = graph.at(id);
  std::vector<std::string> items;
  for (const std::uint32_t item : node.items) items.push_back(text_of(graph, item, depth - 1));
  const std::string joined = fmt::format("{}", fmt::join(items, ", "));
  switch (node.kind) {
    using enum PickleKind;
    case none:
      return "None";
    case boolean:
      return node.integer != 0 ? "True" : "False";
    case integer:
      return std::to_string(node.integer);
    case big_integer:
      return fmt::format("big({})", node.text);
    case number:
      return float_text(node.number);
    case text:
      return '"' + hex(node.text) + '"';
    case old_string:
      return fmt::format("old({})", node.text);
    case bytes:
      return fmt::format("bytes({})", hex(node.text));
    case bytearray:
      return fmt::format("bytearray({})", hex(node.text));
    case list:
      return "[" + joined + "]";
    case tuple:
      return "(" + joined + (items.size() == 1 ? ",)" : ")");
    case dict: {
      std::string pairs;
      for (std::size_t i = 0; i < items.size(); i += 2) {
        pairs += (i > 0 ? ", " : "") + items[i] + ": " + items[i + 1];
      }
      return "{" + pairs + "}";
    }
    case set:
      return "set(" + joined + ")";
    case frozenset:
      return "frozenset(" + joined + ")";
    case global:
      return fmt::format("global({} {})", node.text, node.name);
    case extension:
      return fmt::format("extension({})", node.integer);
    case reduce:
      return "call(" + joined + ")";
    case newobj:
      return "new(" + joined + ")";
    case instance:
      return "instance(" + joined + ")";
    case persistent:
      return "persistent(" + joined + ")";
  }
  return "?";
}

std::string text_of(std::string_view pickle) {
  const PickleGraph graph = read_pickle(pickle, "x.pkl");
  return text_of(graph, graph.root);
}

/// Returns "<code>: <message>" of the error without the name of the pickle, or "" if the pickle can
/// be read.
std::string complaint(std::string_view pickle, const PickleLimits& limits = {}) {
  try {
    read_pickle(pickle, "x.pkl", limits);
  } catch (const Error& error) {
    const std::string kind = error.code() == ErrorCode::corrupt       ? "corrupt"
                             : error.code() == ErrorCode::unsupported ? "unsupported"
                                                                      : "another code";
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("x.pkl: ")) << text;
    return kind + text.substr(5);
  }
  return "";
}

TEST(Pickle, PlainValuesOfEveryProtocolEqualPythons) {
  std::string found;
  for (const std::string& name : files("ok-")) {
    found += name + " " + text_of(read_file(kFolder / name)) + "\n";
  }
  EXPECT_EQ(found, read_file(kFolder / "golden.txt"));
}

TEST(Pickle, ErrorsNameTheByteOffset) {
  std::string found;
  for (const std::string& name : files("bad-")) {
    found += name + ": " + complaint(read_file(kFolder / name)) + "\n";
  }
  EXPECT_EQ(found, read_file(kFolder / "expected.txt"));
}

TEST(Pickle, NoPrefixIsAPickle) {
  for (const std::string& name : files("ok-")) {
    const std::string pickle = read_file(kFolder / name);
    for (std::size_t size = 0; size < pickle.size(); ++size) {
      EXPECT_NE(complaint(std::string_view(pickle).substr(0, size)), "") << name << " " << size;
    }
  }
}

TEST(Pickle, FlippedBitsAreReadOrRefused) {
  std::mt19937 random(1);
  for (const std::string& name : files("ok-")) {
    const std::string pickle = read_file(kFolder / name);
    for (int i = 0; i < 500; ++i) {
      std::string damaged = pickle;
      damaged[random() % damaged.size()] ^= static_cast<char>(1U << (random() % 8));
      EXPECT_FALSE(complaint(damaged).starts_with("another code")) << name << ", flip " << i;
    }
  }
}

TEST(Pickle, SharedObjectsAreOneNode) {
  // x = [1]; (x, x)
  const std::string pickle = "\x80\x02]q\x01K\x01"s + "ah\x01\x86.";
  const PickleGraph graph = read_pickle(pickle, "x");
  const PickleNode root = graph.at(graph.root);
  ASSERT_EQ(root.items.size(), 2U);
  EXPECT_EQ(root.items[0], root.items[1]);
  EXPECT_EQ(text_of(graph, graph.root), "([1], [1])");
}

TEST(Pickle, AListMayContainItself) {
  const std::string pickle = "\x80\x02]q\x01h\x01"s + "a.";
  const PickleGraph graph = read_pickle(pickle, "x");
  ASSERT_THAT(graph.at(graph.root).items, ElementsAre(graph.root));
}

TEST(Pickle, ATupleMayBeInItsOwnList) {
  // t = ([t],) as Python writes it: the list is written first. Then the tuple is created, stored in
  // the memo, and appended to the list. Then the list is popped, and the tuple is read from the
  // memo.
  const std::string pickle = "\x80\x02]q\x01h\x01\x85q\x02"s + "a0h\x02.";
  const PickleGraph graph = read_pickle(pickle, "x");
  const PickleNode list = graph.at(graph.at(graph.root).items[0]);
  EXPECT_THAT(list.items, ElementsAre(graph.root));
}

TEST(Pickle, SharedNodesAreNotExpanded) {
  // ((((), ()), ((), ())), ...): 2^400 tuples if expanded.
  std::string pickle = "\x80\x02)"s;
  for (int i = 0; i < 400; ++i) pickle += "2\x86"s;
  pickle += ".";
  EXPECT_EQ(read_pickle(pickle, "x").nodes.size(), 401U);
}

TEST(Pickle, CallsAreReported) {
  EXPECT_EQ(text_of("cos\nsystem\n(X\x02\x00\x00\x00lstR."s),
            "call(global(os system), (\"6c73\",))");
  EXPECT_EQ(text_of("\x80\x04\x8c\x02os\x8c\x06system\x93)R."s), "call(global(os system), ())");
  EXPECT_EQ(text_of("ca\nB\n)\x81."s), "new(global(a B), ())");
  EXPECT_EQ(text_of("ca\nB\n)}\x92."s), "new(global(a B), (), {})");
  EXPECT_EQ(text_of("(K\x01ia\nB\n."s), "instance(global(a B), (1,))");
  EXPECT_EQ(text_of("(ca\nB\nK\x01o."s), "instance(global(a B), (1,))");
  EXPECT_EQ(text_of("\x82\x07."s), "extension(7)");
  EXPECT_EQ(text_of("\x83\x07\x01."s), "extension(263)");
}

TEST(Pickle, PersistentIdsAreReported) {
  EXPECT_EQ(text_of("Pabc\n."s), "persistent(\"616263\")");
  EXPECT_EQ(text_of("K\x01\x85Q."s), "persistent((1,))");
}

TEST(Pickle, StringsOfPython2KeepTheirBytes) {
  EXPECT_EQ(text_of("S'a\\x41\\101\\n\\q'\n."s), "old(aAA\n\\q)");
  EXPECT_EQ(text_of("U\x03"s + "a\xff" + "b."), "old(a\xff" + "b)"s);
  EXPECT_EQ(text_of("T\x01\x00\x00\x00z."s), "old(z)");
}

TEST(Pickle, ChangesOfAnObjectKeepTheirOrder) {
  // An OrderedDict() with four changes: set an item, set the state, append a value, and add a
  // value.
  const std::string pickle =
      "\x80\x02"
      "ccollections\nOrderedDict\n)RK\x01K\x02sK\x03"
      "bK\x04"
      "a(K\x05\x90."s;
  const PickleGraph graph = read_pickle(pickle, "x");
  std::string found;
  for (const PickleChange& change : graph.changes) {
    EXPECT_EQ(change.object, graph.root);
    using enum PickleChange::Kind;
    if (change.kind == set_item) found += "[" + text_of(graph, change.key) + "]=";
    if (change.kind == append) found += "append ";
    if (change.kind == add) found += "add ";
    if (change.kind == state) found += "state ";
    found += text_of(graph, change.value) + "; ";
  }
  EXPECT_EQ(found, "[1]=2; state 3; append 4; add 5; ");
}

TEST(Pickle, MemoSlotsMayHaveAnyNumber) {
  // Slot 4294967295; then slot 10, which is written twice.
  EXPECT_EQ(text_of("K\x07r\xff\xff\xff\xff"s + "0j\xff\xff\xff\xff."), "7");
  EXPECT_EQ(text_of("K\x07p10\nK\x08p10\n\x86g10\n\x86."s), "((7, 8), 8)");
}

TEST(Pickle, MemoSlotsThatCollideInAHashTableTakeNoQuadraticTime) {
  constexpr std::size_t kSlots = 1'200'000;
  std::unordered_set<std::uint64_t> table;
  for (std::size_t i = 0; i < kSlots; ++i) table.insert(i);
  std::string pickle = "N";
  for (std::size_t i = 1; i <= kSlots; ++i) {
    pickle += fmt::format("p{}\n", i * table.bucket_count());
  }
  // With a hash table, this takes longer than the timeout of the test.
  EXPECT_EQ(text_of(pickle + "."), "None");
}

TEST(Pickle, AnotherPickleMayFollow) {
  const std::string two = "\x80\x02K\x01.\x80\x02K\x02."s;
  const PickleGraph first = read_pickle(two, "x");
  EXPECT_EQ(first.size_bytes, 5U);
  EXPECT_EQ(text_of(std::string_view(two).substr(5)), "2");
}

TEST(Pickle, NaturalReportsAnIntegerOutOfRange) {
  const auto found = [](const std::string& digits) -> std::string {
    const std::string pickle = "L" + digits + "L\n.";
    const PickleGraph graph = read_pickle(pickle, "x.pkl");
    try {
      return std::to_string(graph.natural(graph.root, [] { return Error(ErrorCode::corrupt); }));
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(found("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(found("-1"), "expected an integer from 0, found -1");
  EXPECT_EQ(found("9223372036854775808"),
            "expected an integer from 0 to 9223372036854775807, found 9223372036854775808");
  EXPECT_EQ(
      found(std::string(100, '1')),
      "expected an integer from 0 to 9223372036854775807, found " + std::string(40, '1') + "...");
}

TEST(Pickle, LengthsMayBeATupleAListOrASize) {
  const auto found = [](const std::string& pickle) -> std::string {
    const PickleGraph graph = read_pickle(pickle, "x.pkl");
    try {
      const auto lengths = graph.lengths(graph.root, [] { return Error(ErrorCode::corrupt); });
      return fmt::format("{}", fmt::join(lengths, ","));
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(found("(K\x02K\x03t."s), "2,3");
  EXPECT_EQ(found("](K\x02K\3e."s), "2,3");
  EXPECT_EQ(found("ctorch\nSize\n((K\x02K\x03ttR."s), "2,3");
  EXPECT_EQ(found("ctorch\nSize\n)R."s),
            "expected a torch.Size, tuple or list, found a call of \"torch.Size\"");
  EXPECT_EQ(found("cos\nsystem\n."s), "expected a torch.Size, tuple or list, found \"os.system\"");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "K\x01";
  many += "t.";
  const PickleGraph graph = read_pickle(many, "x.pkl");
  test::expect_error(ErrorCode::unsupported, "too many dimensions: expected at most 64, found 65",
                     [&] { graph.lengths(graph.root, [] { return Error(ErrorCode::corrupt); }); });
}

TEST(Pickle, ValuesAreDescribedForMessages) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"N", "None"},
      {"\x88", "a boolean"},
      {"K\x01", "an integer"},
      {"L36893488147419103232L\n", "an integer"},
      {"F0.5\n", "a float"},
      {"X\1\0\0\0a"s, "text"},
      {"U\1a", "a string of Python 2"},
      {"C\1a", "bytes"},
      {"\x96\1\0\0\0\0\0\0\0a"s, "a bytearray"},
      {"]", "a list"},
      {")", "a tuple"},
      {"}", "a dict"},
      {"\x8f", "a set"},
      {"(\x91", "a frozenset"},
      {"\x82\x07", "an extension code"},
      {"NQ", "a persistent id"},
      {"cos\nsystem\n", "\"os.system\""},
      {"cos\nsystem\n)R", "a call of \"os.system\""},
      {"ca\nB\n)\x81", "an object of \"a.B\""},
      {"(ia\nB\n", "an object of \"a.B\""},
      {"ca\nB\n)R)R", "a call"},
      {"ca\nB\n)R)\x81", "an object"}};
  for (const auto& [pickle, expected] : cases) {
    const std::string whole = pickle + ".";
    const PickleGraph graph = read_pickle(whole, "x.pkl");
    EXPECT_EQ(graph.describe(graph.root), expected);
  }
  EXPECT_EQ(describe(PickleKind::global), "a global");
}

TEST(Pickle, LimitsAreSetByTheCaller) {
  EXPECT_EQ(complaint("(K\x01K\x02K\x03t."s, {.max_nodes = 3}),
            "unsupported: too many values: expected at most 3, found more at byte 7");
  EXPECT_EQ(complaint("(K\x01K\x02K\x03t."s, {.max_nodes = 4}), "");
  EXPECT_EQ(complaint(")\x85\x85."s, {.max_depth = 2}),
            "unsupported: nesting is too deep: expected at most 2 levels, found more at byte 2");
  const std::string changed = "ca\nB\n)RNbNbNbNbNb.";  // 4 nodes, 5 changes
  EXPECT_EQ(complaint(changed, {.max_nodes = 4}),
            "unsupported: too many changes of objects: expected at most 4, found more at byte 16");
  EXPECT_EQ(complaint(changed, {.max_nodes = 5}), "");
  EXPECT_EQ(complaint(")\x85\x85."s, {.max_depth = 3}), "");
  EXPECT_EQ(complaint("\x8a\x09"s + std::string(9, '\1') + ".", {.max_integer_bytes = 8}),
            "unsupported: an integer is too long: expected at most 8 bytes, found 9 at byte 0");
  const std::string digits(17, '1');
  for (const std::string& line : {"I" + digits + "\n.", "L" + digits + "L\n."}) {
    EXPECT_EQ(
        complaint(line, {.max_integer_bytes = 8}),
        "unsupported: an integer is too long: expected at most 16 digits, found 17 at byte 0");
    EXPECT_EQ(complaint(line), "");
  }
}

}  // namespace
}  // namespace tenfold::codecs
