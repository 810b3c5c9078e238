#include "checkpoint/document.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"

namespace tenfold::checkpoint {
namespace {

std::string json_of(const Value& value) { return to_json(value, codecs::JsonStyle::utf8_compact); }

Value object(std::vector<std::pair<std::string, Value>> members) {
  Value::Object made;
  made.members = std::move(members);
  return {std::move(made)};
}

Value number(std::uint64_t value) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return {static_cast<std::int64_t>(std::min(value, kMost))};
}

/// Strict JSON has neither infinities nor NaN, so they are written as strings.
Value metric_value(double value) {
  if (std::isnan(value)) return {"nan"};
  if (std::isinf(value)) return {value > 0 ? "inf" : "-inf"};
  return {value};
}

std::string checksum_of(std::string_view text) {
  return base::hex16(base::xxh3(std::as_bytes(std::span(text))));
}

constexpr std::string_view kChecksumMember = ",\n\"checksum\": \"";

/// Reads one object; errors name the member.
class Reader {
 public:
  Reader(const Value& value, std::string where, std::string part)
      : where_(std::move(where)), part_(std::move(part)), object_(value.get_if<Value::Object>()) {
    if (object_ == nullptr) fail(part_, "an object", value);
  }

  const Value& member(std::string_view key) const {
    const Value* found = object_->find(key);
    if (found == nullptr) {
      throw base::corrupt(where_).part(name(key)).problem("is missing");
    }
    return *found;
  }
  const Value* find(std::string_view key) const { return object_->find(key); }

  std::int64_t integer(std::string_view key, std::int64_t least = 0) const {
    const Value& value = member(key);
    const auto* found = value.get_if<std::int64_t>();
    if (found == nullptr) fail(name(key), "an integer", value);
    if (*found < least) fail(name(key), "an integer from " + std::to_string(least) + " on", value);
    return *found;
  }
  std::string text(std::string_view key) const {
    const Value& value = member(key);
    const auto* found = value.get_if<std::string>();
    if (found == nullptr) fail(name(key), "a string", value);
    return *found;
  }
  const std::vector<Value>& list(std::string_view key) const {
    const Value& value = member(key);
    const auto* found = value.get_if<Value::List>();
    if (found == nullptr) fail(name(key), "an array", value);
    return found->items;
  }
  const Value::Object& object(std::string_view key) const {
    const Value& value = member(key);
    const auto* found = value.get_if<Value::Object>();
    if (found == nullptr) fail(name(key), "an object", value);
    return *found;
  }

  std::string name(std::string_view key) const {
    return (part_.empty() ? "" : part_ + ".") + std::string(key);
  }
  [[noreturn]] void fail(const std::string& part, const std::string& expected,
                         const Value& found) const {
    std::string shown = std::string(found.type_name());
    if (found.is<std::string>() || found.is<std::int64_t>()) {
      shown += " " + base::quote(to_json(found));
    }
    throw base::corrupt(where_)
        .part((part.empty() ? "the document" : part))
        .expected(expected)
        .found(shown);
  }
  const std::string& where() const noexcept { return where_; }

 private:
  std::string where_;
  std::string part_;
  const Value::Object* object_;
};

double metric_from(const Reader& reader, const std::string& name, const Value& value) {
  if (const auto* real = value.get_if<double>()) return *real;
  if (const auto* whole = value.get_if<std::int64_t>()) return static_cast<double>(*whole);
  if (const auto* text = value.get_if<std::string>()) {
    if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (*text == "inf") return std::numeric_limits<double>::infinity();
    if (*text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  reader.fail("metrics." + name, R"(a number, "nan", "inf" or "-inf")", value);
}

bool is_hex16(std::string_view text) {
  return text.size() == 16 && std::ranges::all_of(text, [](char c) {
           return base::is_digit(c) || (c >= 'a' && c <= 'f');
         });
}

CheckpointEntry entry_from(const Value& value, const std::string& where, std::size_t position) {
  const Reader reader(value, where, "entries." + std::to_string(position));
  CheckpointEntry entry;
  entry.name = reader.text("name");
  entry.path = reader.text("path");
  if (reader.find("rank") != nullptr) entry.rank = reader.integer("rank");
  const std::string folder = entry.rank ? rank_folder(*entry.rank) : "";
  if (!entry.path.starts_with(folder) || !is_entry_path(entry.path.substr(folder.size()))) {
    reader.fail(reader.name("path"),
                entry.rank ? "the name of a file or folder below " + base::quote(folder)
                           : "the name of a file or folder in the step's folder",
                reader.member("path"));
  }
  entry.format = reader.text("format");
  if (const Value* bare = reader.find("bare")) {
    const auto* found = bare->get_if<bool>();
    if (found == nullptr) reader.fail(reader.name("bare"), "a bool", *bare);
    entry.is_bare = *found;
  }
  entry.num_bytes = static_cast<std::uint64_t>(reader.integer("bytes"));
  entry.checksum = reader.text("checksum");
  if (!is_hex16(entry.checksum)) {
    reader.fail(reader.name("checksum"), "16 hexadecimal digits", reader.member("checksum"));
  }
  return entry;
}

std::vector<CheckpointRun> lineage_from(const Reader& reader, std::int64_t step) {
  std::vector<CheckpointRun> lineage;
  for (const Value& item : reader.list("lineage")) {
    const auto* pair = item.get_if<Value::List>();
    const auto* run =
        pair == nullptr || pair->items.size() != 2 ? nullptr : pair->items[0].get_if<std::string>();
    const auto* last = run == nullptr ? nullptr : pair->items[1].get_if<std::int64_t>();
    if (last == nullptr) reader.fail("lineage", "pairs of a run and its last step", item);
    lineage.push_back({*run, *last});
  }
  if (lineage.empty() || lineage.back().last_step != step) {
    throw base::corrupt(reader.where())
        .part("lineage")
        .expected("step ", step, " in its last item")
        .found("no such item");
  }
  return lineage;
}

}  // namespace

bool is_json(const Value& value) {
  if (value.is<Value::Tuple>() || value.is<Value::Special>()) return false;
  if (const auto* text = value.get_if<std::string>()) return base::is_utf8(*text);
  if (const auto* list = value.get_if<Value::List>())
    return std::ranges::all_of(list->items, is_json);
  if (const auto* object = value.get_if<Value::Object>()) {
    return !object->int_keys && !object->ordered && object->typed_keys.empty() &&
           std::ranges::all_of(object->members, [](const auto& member) {
             return base::is_utf8(member.first) && is_json(member.second);
           });
  }
  return true;
}

bool is_finite(const Value& value) {
  if (const auto* number = value.get_if<double>()) return std::isfinite(*number);
  if (const auto* list = value.get_if<Value::List>()) {
    return std::ranges::all_of(list->items, is_finite);
  }
  const auto* object = value.get_if<Value::Object>();
  return object == nullptr || std::ranges::all_of(object->members, [](const auto& member) {
           return is_finite(member.second);
         });
}

bool is_entry_path(std::string_view path) noexcept {
  return !path.empty() && path.size() <= kMaxEntryPathBytes && path.front() != '.' &&
         path != kDocumentName && path.find('/') == std::string_view::npos &&
         path.find('\0') == std::string_view::npos;
}

std::string rank_folder(std::int64_t rank) {
  return std::string(kRanksName) + "/" + std::to_string(rank) + "/";
}

std::string write_document(const CheckpointInfo& info) {
  Value::List lineage;
  for (const CheckpointRun& run : info.lineage) {
    lineage.items.emplace_back(Value::List{{Value(run.run_id), Value(run.last_step)}});
  }
  Value::Object metrics;
  for (const auto& [name, value] : info.metrics) {
    metrics.members.emplace_back(name, metric_value(value));
  }
  std::string entries;
  for (const CheckpointEntry& entry : info.entries) {
    std::vector<std::pair<std::string, Value>> members = {
        {"name", entry.name}, {"path", entry.path}, {"format", entry.format}};
    if (entry.rank) members.emplace_back("rank", *entry.rank);
    if (entry.is_bare) members.emplace_back("bare", true);
    members.emplace_back("bytes", number(entry.num_bytes));
    members.emplace_back("checksum", entry.checksum);
    entries += (entries.empty() ? "\n  " : ",\n  ") + json_of(object(std::move(members)));
  }
  std::string text =
      "{\n\"format\": " + json_of(std::string(kFormatName)) +
      ",\n\"version\": " + std::to_string(kDocumentVersion) +
      ",\n\"step\": " + std::to_string(info.step) + ",\n\"seq\": " + std::to_string(info.seq) +
      ",\n\"lineage\": " + json_of(std::move(lineage)) + ",\n\"time\": " + json_of(info.time) +
      ",\n\"metrics\": " + json_of(std::move(metrics)) + ",\n\"extra\": " + json_of(info.extra) +
      ",\n\"versions\": " + json_of(info.versions) +
      ",\n\"world_size\": " + std::to_string(info.world_size) +
      (info.saved_ns ? ",\n\"saved_ns\": " + std::to_string(*info.saved_ns) : "") +
      ",\n\"entries\": [" + entries + (entries.empty() ? "]" : "\n]");
  const std::string checksum = checksum_of(text);
  return std::move(text) + std::string(kChecksumMember) + checksum + "\"\n}\n";
}

CheckpointInfo parse_document(std::string_view text, const std::string& where) {
  const Value document = from_json(text, where);
  const Reader reader(document, where, "");
  if (!is_json(document)) {
    throw base::corrupt(where).expected("Unicode text").found("an unpaired surrogate");
  }
  if (reader.text("format") != kFormatName) {
    reader.fail("format", base::quote(kFormatName), reader.member("format"));
  }
  const std::int64_t version = reader.integer("version", 1);
  if (version > kDocumentVersion) {
    throw base::unsupported(where)
        .part("version")
        .expected(kDocumentVersion, " at most")
        .found(version)
        .remedy("read it with the newer version of tenfold that wrote it");
  }
  CheckpointInfo info;
  info.step = reader.integer("step");
  info.seq = reader.integer("seq");
  info.lineage = lineage_from(reader, info.step);
  info.time = reader.text("time");
  for (const auto& [name, value] : reader.object("metrics").members) {
    info.metrics[name] = metric_from(reader, name, value);
  }
  if (const Value* extra = reader.find("extra")) info.extra = *extra;
  if (const Value* versions = reader.find("versions")) info.versions = *versions;
  info.world_size = reader.integer("world_size", 1);
  if (reader.find("saved_ns") != nullptr) {
    info.saved_ns = reader.integer("saved_ns", std::numeric_limits<std::int64_t>::min());
  }
  std::set<std::pair<std::int64_t, std::string>> names;  // rank (-1: all ranks) and name
  std::set<std::string> paths;
  for (const Value& item : reader.list("entries")) {
    CheckpointEntry entry = entry_from(item, where, info.entries.size());
    if (entry.rank && *entry.rank >= info.world_size) {
      throw base::corrupt(where)
          .part("entries.", info.entries.size(), ".rank")
          .expected("less than the world size ", info.world_size)
          .found(*entry.rank);
    }
    const bool is_new = names.emplace(entry.rank.value_or(-1), entry.name).second &&
                        paths.insert(entry.path).second;
    if (!is_new) {
      throw base::corrupt(where)
          .part("entries.", info.entries.size())
          .expected("each name and path once")
          .found(base::quote(entry.name), " (", base::quote(entry.path), ") again");
    }
    info.entries.push_back(std::move(entry));
  }
  return info;
}

void require_checksum(std::string_view text, const std::string& where) {
  const std::size_t at = text.rfind(kChecksumMember);
  if (at == std::string_view::npos) return;
  const std::string_view found = text.substr(at + kChecksumMember.size(), 16);
  const std::string expected = checksum_of(text.substr(0, at));
  if (found == expected) return;
  throw base::corrupt(where)
      .part("checksum")
      .expected(expected)
      .found(base::quote(found))
      .remedy("the file is damaged, or was edited by hand");
}

}  // namespace tenfold::checkpoint
