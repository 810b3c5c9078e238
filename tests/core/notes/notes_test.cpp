#include "core/notes/notes.hpp"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tenfold/error.hpp>
#include <tenfold/warnings.hpp>

namespace tenfold {
namespace {

std::vector<std::string> warnings;

/// Collects warnings while a test runs.
class NotesTest : public testing::Test {
 protected:
  void SetUp() override {
    warnings.clear();
    before_ = set_warning_handler([](const std::string& message) { warnings.push_back(message); });
  }
  void TearDown() override { set_warning_handler(before_); }

 private:
  WarningHandler before_ = nullptr;
};

TensorDict node_of(NodeKind kind, bool int_keys = false) {
  NodeInfo info;
  info.kind = kind;
  info.int_keys = int_keys;
  return TensorDict(info);
}

Tensor three_zeros() { return Tensor::zeros(DType::float32, {3}); }

std::string message_of(const std::string& text, ErrorCode code = ErrorCode::corrupt) {
  try {
    Notes::from_json(text, "n.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text;
    return error.what();
  }
  return "";
}

const char* const kFull =
    R"({"version": 1, "nodes": {"": {"kind": "dict"}, "o/state": {"kind": "ordered_dict", )"
    R"("int_keys": true}}, "values": {"o/g": {"tuples": ["/0/betas"], "int_keys": ["/1"], )"
    R"("ordered": [""]}}, "aliases": {"head%2Fw": "embed"}, "leaves": {"shape": {"dtype": )"
    R"("float32", "shape": [3, 0]}}, "files": {"x.memmap": "%clash-0"}, "unbatched": ["table"], )"
    R"("schema": {"columns": [NaN]}})";

TypedKeys some_keys() {
  return {{"(1, 'a')", Value::Tuple{{1, "a"}}}, {"0.5", 0.5}, {"None", Value()}};
}

TEST_F(NotesTest, NonStringKeysAreKept) {
  TensorDict tree;
  TensorDict child = node_of(NodeKind::dict);
  child.info().typed_keys = some_keys();
  for (const char* key : {"None", "x", "0.5", "(1, 'a')"}) child.set(key, three_zeros());
  tree.set("d", child);
  Value::Object object;
  object.members = {{"x", 1}, {"None", 2}, {"0.5", 3}, {"(1, 'a')", 4}};
  object.typed_keys = some_keys();
  tree.set("v", Value(Value::List{{Value(object)}}));
  const Notes notes = collect_notes(tree);
  const std::string text = notes.to_json();
  const std::string keys = R"__({"(1, 'a')": [1, "a"], "0.5": 0.5, "None": null})__";
  EXPECT_NE(text.find(R"("d": {"kind": "dict", "keys": )" + keys + "}"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("keys": {"/0": )" + keys + "}"), std::string::npos) << text;
  const Notes read = Notes::from_json(text, "n.json");
  EXPECT_EQ(read, notes);
  NodeInfo info;
  apply_node_note(read, "d", child.keys(), info, "n.json");
  EXPECT_EQ(info.typed_keys, some_keys());
  Value value = from_json(R"__([{"x": 1, "None": 2, "0.5": 3, "(1, 'a')": 4}])__", "v");
  EXPECT_TRUE(apply_value_note(read, "v", value, "n.json"));
  EXPECT_EQ(value, tree.value("v"));
  EXPECT_TRUE(warnings.empty());
}

TEST_F(NotesTest, KeysNestedDeeperThanCanBeReadAreRefused) {
  Value key(1);
  for (int i = 0; i < 508; ++i) key = Value(Value::Tuple{{key}});
  Notes notes;
  notes.nodes["d"].kind = NodeKind::dict;
  notes.nodes["d"].typed_keys = {{"k", key}};
  EXPECT_EQ(from_json(notes.to_json(), "n.json").type_name(), "dict");
  notes.nodes["d"].typed_keys = {{"k", Value(Value::Tuple{{key}})}};
  try {
    notes.to_json();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(),
                 "nodes \"d\": nested too deeply: expected at most 512 levels of json, found more");
  }
}

TEST_F(NotesTest, RemovedKeysAreIgnoredWithAWarning) {
  const Notes notes =
      Notes::from_json(R"({"version": 1, "nodes": {"d": {"kind": "dict", "keys": {"0.5": 0.5}}}, )"
                       R"("values": {"v": {"keys": {"": {"0.5": 0.5}}}}})",
                       "n.json");
  NodeInfo info;
  apply_node_note(notes, "d", std::vector<std::string>{"0.75"}, info, "n.json");
  EXPECT_TRUE(info.typed_keys.empty());
  Value value = from_json(R"({"0.75": 1})", "v");
  const Value before = value;
  EXPECT_FALSE(apply_value_note(notes, "v", value, "n.json"));
  EXPECT_EQ(value, before);
  EXPECT_EQ(warnings.size(), 2U);
}

TEST_F(NotesTest, ADocumentIsReadAndWrittenWithoutChange) {
  const Notes notes = Notes::from_json(kFull, "n.json");
  EXPECT_EQ(notes.nodes.at("o/state"), (Notes::NodeNote{NodeKind::ordered_dict, true}));
  EXPECT_EQ(notes.leaves.at("shape"), (Notes::LeafNote{DType::float32, {3, 0}}));
  EXPECT_EQ(notes.to_json(), kFull);
  EXPECT_EQ(Notes::from_json(notes.to_json(), "n.json"), notes);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(NotesTest, NotesWithoutContentAreEmpty) {
  EXPECT_TRUE(Notes().empty());
  EXPECT_EQ(Notes().to_json(), R"({"version": 1})");
  EXPECT_TRUE(Notes::from_json(R"({"version": 1})", "n.json").empty());
  EXPECT_TRUE(collect_notes(TensorDict()).empty());
}

TEST_F(NotesTest, PathsDistinguishEveryKey) {
  EXPECT_EQ(note_path({}), "");
  EXPECT_EQ(note_path({"a", "b.c"}), "a/b.c");
  EXPECT_EQ(note_path({"a/b", "100%"}), "a%2Fb/100%25");
  EXPECT_EQ(note_path({""}), "%");
  EXPECT_EQ(note_path_child("a", ""), "a/%");
  for (const KeyPath& keys : std::vector<KeyPath>{
           {}, {""}, {"", ""}, {"a", ""}, {"%"}, {"/"}, {"%2F", "%25", "//"}, {"a/", "b"}}) {
    EXPECT_EQ(keys_of_note_path(note_path(keys)), keys);
  }
  for (const char* bad : {"/", "/a", "a/", "a//b", "%2", "%2f", "a%", "%%", "%41"}) {
    EXPECT_EQ(keys_of_note_path(bad), std::nullopt) << bad;
  }
}

TEST_F(NotesTest, KindsOfContainersAreCollected) {
  TensorDict root = node_of(NodeKind::dict);
  TensorDict state = node_of(NodeKind::dict, true);
  state.set("0", three_zeros());
  root.set("state", state);
  root.set("pair", node_of(NodeKind::tuple));
  root.set("batch", node_of(NodeKind::tensordict));
  root.set("lazy", node_of(NodeKind::lazy_stack));
  const Notes notes = collect_notes(root);
  EXPECT_EQ(notes.to_json(),
            R"({"version": 1, "nodes": {"": {"kind": "dict"}, "pair": {"kind": "tuple"}, )"
            R"("state": {"kind": "dict", "int_keys": true}}})");
}

TEST_F(NotesTest, LeavesOverTheSameBytesAreAliasesOfTheFirst) {
  const Tensor shared = three_zeros();
  TensorDict root;
  TensorDict head;
  root.set("z", shared);
  head.set("w", shared);
  head.set("other", three_zeros());
  head.set("part", shared.narrow(0, 2));
  root.set("head", head);
  root.set("a", shared);
  const Notes notes = collect_notes(root);
  EXPECT_EQ(notes.aliases, (decltype(notes.aliases){{"head/w", "z"}, {"a", "z"}}));
}

TEST_F(NotesTest, UnbatchedLeavesAreCollected) {
  Leaf leaf(three_zeros());
  leaf.mark_unbatched();
  TensorDict root;
  root.set("x", three_zeros());
  root.set("table", TensorDict::Item(leaf));
  EXPECT_EQ(collect_notes(root).unbatched, std::vector<std::string>{"table"});
}

/// {"betas": (0.9, (1,)), "a~/b": OrderedDict({1: [()]})}
Value marked_value() {
  Value::Object inner;
  inner.members = {{"1", Value::List{{Value::Tuple{}}}}};
  inner.int_keys = true;
  inner.ordered = true;
  Value::Object outer;
  outer.members = {{"betas", Value::Tuple{{0.9, Value::Tuple{{1}}}}}, {"a~/b", inner}};
  return outer;
}

TEST_F(NotesTest, TypeNotesOfAValueSurviveJson) {
  TensorDict root;
  root.set("v", marked_value());
  const Notes collected = collect_notes(root);
  EXPECT_EQ(collected.values.at("v").tuples,
            (std::vector<std::string>{"/betas", "/betas/1", "/a~0~1b/1/0"}));
  const Notes notes = Notes::from_json(collected.to_json(), "n.json");
  Value value = from_json(to_json(marked_value()), "v");
  ASSERT_NE(value, marked_value());
  EXPECT_TRUE(apply_value_note(notes, "v", value, "n.json"));
  EXPECT_EQ(value, marked_value());
  EXPECT_TRUE(warnings.empty());
}

TEST_F(NotesTest, ACounterWithoutItemsIsReadAsAnEmptyOne) {
  const Value empty(Value::Special{.type = Value::Special::Type::counter});
  Notes notes;
  collect_value_note("v", empty, notes);
  Value value = from_json(to_json(empty), "v");
  EXPECT_TRUE(apply_value_note(notes, "v", value, "n.json"));
  EXPECT_EQ(value, Value(Value::Special{.type = Value::Special::Type::counter,
                                        .items = {Value(Value::Object())}}));
}

TEST_F(NotesTest, AStaleValueNoteWarnsAndChangesNothing) {
  Notes notes;
  notes.values["v"].tuples = {"/0", "/2"};
  const std::vector<std::pair<const char*, Notes::ValueNote>> cases = {
      {"[[1], 2]", {{"/0", "/2"}, {}, {}}}, {"[[1], 2]", {{"/0", "/1"}, {}, {}}},
      {"{\"a\": 1}", {{}, {""}, {}}},       {"{\"01\": 1}", {{}, {""}, {}}},
      {"[[]]", {{"/0"}, {}, {"/0"}}},       {"[[]]", {{}, {}, {"/0"}}},
      {"[[]]", {{"/00"}, {}, {}}},          {"[[]]", {{"0"}, {}, {}}},
  };
  for (const auto& [text, note] : cases) {
    warnings.clear();
    notes.values["v"] = note;
    Value value = from_json(text, "v");
    EXPECT_FALSE(apply_value_note(notes, "v", value, "n.json")) << text;
    EXPECT_EQ(value, from_json(text, "v"));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(warnings[0].starts_with("n.json: value \"v\": ")) << warnings[0];
  }
}

TEST_F(NotesTest, AValueWithoutANoteIsUnchanged) {
  Value value(3);
  EXPECT_TRUE(apply_value_note(Notes(), "v", value, "n.json"));
  EXPECT_EQ(value, Value(3));
}

TEST_F(NotesTest, ANodeNoteSetsTheKind) {
  Notes notes;
  notes.nodes["s"] = {NodeKind::dict, true};
  NodeInfo info;
  const std::vector<std::string> keys = {"0", "-7", "12345678901234567890"};
  apply_node_note(notes, "s", keys, info, "n.json");
  EXPECT_EQ(info.kind, NodeKind::dict);
  EXPECT_TRUE(info.int_keys);
  NodeInfo other;
  apply_node_note(notes, "t", other, "n.json");
  EXPECT_EQ(other.kind, NodeKind::tensordict);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(NotesTest, AMismatchedNodeNoteIsIgnoredWithAWarning) {
  Notes notes;
  notes.nodes["s"] = {NodeKind::dict, true};
  notes.nodes["l"] = {NodeKind::list, false};
  for (const std::string key : {"a", "", "-", "-0", "01", "1.5", "+1"}) {
    NodeInfo info;
    apply_node_note(notes, "s", std::vector<std::string>{"1", key}, info, "n.json");
    EXPECT_EQ(info.kind, NodeKind::tensordict) << key;
  }
  NodeInfo info;
  apply_node_note(notes, "l", std::vector<std::string>{"0", "2"}, info, "n.json");
  EXPECT_EQ(info.kind, NodeKind::tensordict);
  EXPECT_EQ(warnings.size(), 8u);
  EXPECT_EQ(warnings.back(),
            "n.json: node \"l\": kind \"list\" is ignored: expected keys \"0\", \"1\", ..., found "
            "others; another tool may have changed the tree");
  NodeInfo stack;
  stack.kind = NodeKind::lazy_stack;
  apply_node_note(notes, "l", stack, "n.json");
  EXPECT_EQ(stack.kind, NodeKind::lazy_stack);
  EXPECT_EQ(warnings.size(), 9u);
}

TEST_F(NotesTest, OnlyTheRootCanBeBare) {
  const TensorDict root = bare_tree(Leaf(three_zeros()));
  const Notes notes = collect_notes(root);
  EXPECT_EQ(notes.to_json(), R"({"version": 1, "nodes": {"": {"kind": "dict", "bare": true}}})");
  NodeInfo info;
  apply_node_note(Notes::from_json(notes.to_json(), "n.json"), "",
                  std::vector<std::string>{"value"}, info, "n.json");
  EXPECT_TRUE(info.is_bare);
  NodeInfo other;
  apply_node_note(notes, "", std::vector<std::string>{"value", "b"}, other, "n.json");
  EXPECT_FALSE(other.is_bare);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("expected the key \"value\" alone, found others"), std::string::npos);
  TensorDict above = node_of(NodeKind::dict);
  above.set("a", root);
  EXPECT_FALSE(collect_notes(above).nodes.at("a").is_bare);
}

TEST_F(NotesTest, AnUnknownMemberIsIgnoredWithAWarning) {
  EXPECT_TRUE(Notes::from_json(R"({"version": 1, "colours": []})", "n.json").empty());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with("n.json: member \"colours\": is ignored: ")) << warnings[0];
}

TEST_F(NotesTest, AHigherVersionIsUnsupported) {
  EXPECT_EQ(message_of(R"({"version": 2, "nodes": 3})", ErrorCode::unsupported),
            "n.json: version: is not known: expected at most 1, found 2; a newer tenfold wrote it");
}

TEST_F(NotesTest, AnInvalidDocumentIsCorruptAndNamesItsPart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "notes: wrong type: expected dict, found list"},
      {"{}", "version: is missing: expected 1, found no member"},
      {R"({"version": "1"})", "version: wrong type: expected int, found str"},
      {R"({"version": 0})", "version: out of range: expected 1, found 0"},
      {R"({"version": 1, "version": 1})",
       "key \"version\": duplicate key in a json object: expected each key once, found "
       "the key again"},
      {R"({"version": 1, "nodes": []})", "nodes: wrong type: expected dict, found list"},
      {R"({"version": 1, "nodes": {"a": 1}})", "node \"a\": wrong type: expected dict, found int"},
      {R"({"version": 1, "nodes": {"a": {}}})",
       "node \"a\": kind is missing: expected a kind of node, found no member"},
      {R"({"version": 1, "nodes": {"a": {"kind": "set"}}})",
       "node \"a\": unknown kind: expected \"dict\", \"ordered_dict\", \"list\", \"tuple\" or "
       "\"sparse\", found \"set\""},
      {R"({"version": 1, "nodes": {"a": {"kind": "lazy_stack"}}})",
       "node \"a\": unknown kind: expected \"dict\", \"ordered_dict\", \"list\", \"tuple\" or "
       "\"sparse\", found \"lazy_stack\""},
      {R"({"version": 1, "nodes": {"a": {"kind": "list", "int_keys": true}}})",
       "node \"a\": \"int_keys\" is not allowed for this kind: expected \"dict\" or "
       "\"ordered_dict\", found \"list\""},
      {R"({"version": 1, "nodes": {"": {"kind": "list", "bare": true}}})",
       "node \"\": \"bare\" is not allowed: expected the root, of kind \"dict\", "
       "found \"list\""},
      {R"({"version": 1, "nodes": {"a": {"kind": "dict", "bare": true}}})",
       "node \"a\": \"bare\" is not allowed: expected the root, of kind \"dict\", "
       "found another node"},
      {R"({"version": 1, "nodes": {"": {"kind": "dict", "bare": 1}}})",
       "node \"\": wrong type: expected bool, found int"},
      {R"({"version": 1, "nodes": {"a": {"kind": "list", "keys": {"0.5": 0.5}}}})",
       "node \"a\": \"keys\" is not allowed for this kind: expected \"dict\" or \"ordered_dict\", "
       "found \"list\""},
      {R"({"version": 1, "nodes": {"a": {"kind": "dict", "keys": []}}})",
       "node \"a\": wrong type: expected dict, found list"},
      {R"({"version": 1, "nodes": {"a": {"kind": "dict", "keys": {"1": 1, "True": true}}}})",
       "node \"a\": keys: expected distinct keys that are null, bool, int, float, or an array of "
       "these and strings, each as the value of the member str(key), found {\"1\": 1, \"True\": "
       "true}"},
      {R"({"version": 1, "nodes": {"a": {"kind": "dict", "int_keys": true, "keys": {"1": 1}}}})",
       "node \"a\": \"int_keys\" and \"keys\" exclude each other: expected one of them, found "
       "both"},
      {R"({"version": 1, "values": {"a": {"keys": {"/b": {"x": 1}}}}})",
       "value \"a\": keys: expected distinct keys that are null, bool, int, float, or an array of "
       "these and strings, each as the value of the member str(key), found {\"x\": 1}"},
      {R"({"version": 1, "nodes": {"a": {"kind": "sparse", "shape": [2]}}})",
       "node \"a\": layout is missing: expected layout and shape, found no member"},
      {R"({"version": 1, "nodes": {"a": {"kind": "sparse", "layout": "sparse_coo"}}})",
       "node \"a\": shape is missing: expected layout and shape, found no member"},
      {R"({"version": 1, "nodes": {"a": {"kind": "sparse", "layout": "odd", "shape": [2]}}})",
       "node \"a\": unknown layout: expected \"sparse_coo\", \"sparse_csr\", ..., found \"odd\""},
      {R"({"version": 1, "nodes": {"a": {"kind": "sparse", "layout": "jagged", "shape": [-2]}}})",
       "node \"a\": bad shape: expected lengths of at least 0, or -1, found -2"},
      {R"({"version": 1, "nodes": {"../a": {"kind": "dict"}, "/x": {"kind": "dict"}}})",
       "node \"/x\": not a path: expected keys joined by \"/\" with \"%\" and \"/\" as %25 and "
       "%2F, found \"/x\""},
      {R"({"version": 1, "values": {"a": {"tuples": [1]}}})",
       "value \"a\": wrong type: expected str, found int"},
      {R"({"version": 1, "aliases": {"a": null}})",
       "alias \"a\": wrong type: expected str, found null"},
      {R"({"version": 1, "aliases": {"a": "a"}})",
       "alias \"a\": its target is an alias: expected the path of a leaf that is not an "
       "alias, found \"a\""},
      {R"({"version": 1, "aliases": {"a": "b", "b": "c"}})",
       "alias \"a\": its target is an alias: expected the path of a leaf that is not an "
       "alias, found \"b\""},
      {R"({"version": 1, "leaves": {"a": {"shape": []}}})",
       "leaf \"a\": dtype is missing: expected dtype and shape, found no member"},
      {R"({"version": 1, "leaves": {"a": {"dtype": "f32", "shape": []}}})",
       "leaf \"a\": unknown dtype: expected a dtype of torch, found \"f32\""},
      {R"({"version": 1, "leaves": {"a": {"dtype": "int8", "shape": [-1]}}})",
       "leaf \"a\": bad shape: expected lengths of at least 0 that fit 63 bits, found -1"},
      {R"({"version": 1, "leaves": {"a": {"dtype": "int8", "shape": [9223372036854775808]}}})",
       "leaf \"a\": bad shape: expected lengths of at least 0 that fit 63 bits, found "
       "9223372036854775808"},
      {R"({"version": 1, "leaves": {"a": {"dtype": "int16", "shape": [4611686018427387904]}}})",
       "leaf \"a\": shape is too large: expected fewer than 2^63 bytes, found "
       "[4611686018427387904]"},
      {R"({"version": 1, "unbatched": "a"})", "unbatched: wrong type: expected list, found str"},
      {R"({"version": 1, "files": {"a": "b\u0000"}})",
       "file of \"a\": not a file name: expected one path component of 1 to 255 bytes, found "
       "\"b\\x00\""},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(message_of(text), "n.json: " + message);
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"),
        std::string("/etc"), std::string(256, 'x')}) {
    EXPECT_NE(message_of(R"({"version": 1, "files": {"a": ")" + name + "\"}}")
                  .find("expected one path component"),
              std::string::npos);
  }
}

TEST_F(NotesTest, MessagesQuoteOnlyTheStartOfAValue) {
  const std::string large(100'000, 'x');
  for (const std::string& member :
       {R"("leaves": {"a": {"dtype": "int8", "shape": [")" + large + R"("]}})",
        R"("nodes": {"a": {"kind": "sparse", "layout": "jagged", "shape": [")" + large + R"("]}})",
        R"("nodes": {"a": {"kind": "dict", "keys": {")" + large + R"(": 1}}})"}) {
    const std::string message = message_of(R"({"version": 1, )" + member + "}");
    EXPECT_TRUE(message.ends_with("xxx...")) << message.substr(0, 200);
    EXPECT_LT(message.size(), 300U);
  }
}

TEST_F(NotesTest, ATreeThatContainsItselfIsRefused) {
  TensorDict endless;
  endless.set("self", endless);
  try {
    collect_notes(endless);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("expected at most 512 levels"), std::string::npos);
  }
  endless.set("self", Value());  // otherwise it would keep itself alive
}

TEST_F(NotesTest, EveryPrefixIsRefusedAndFlippedBytesAreReadOrRefused) {
  const std::string text = kFull;
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_NE(message_of(text.substr(0, size)), "") << size;
  }
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    std::string flipped = text;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 + random() % 255);
    try {
      const Notes notes = Notes::from_json(flipped, "n.json");
      EXPECT_EQ(Notes::from_json(notes.to_json(), "n.json"), notes);
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported);
    }
  }
}

}  // namespace
}  // namespace tenfold
