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
#include "core/value/value_reader.hpp"

namespace tenfold::checkpoint {
namespace {

std::string json_of(const Value& value) { return to_json(value, codecs::JsonStyle::utf8_compact); }

Value object(std::vector<std::pair<std::string, Value>> members) {
  Value::Object made;
  made.members = std::move(members);
  return {std::move(made)};
}

/// Returns the JSON of a member of the document. Wraps the value in a list, because the document
/// itself is one of the levels that the nesting limit counts.
std::string member_json(const Value& value) {
  const std::string list = json_of(Value::List{{value}});
  return list.substr(1, list.size() - 2);
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
/// Greater values are refused, so that the seq of the next save cannot overflow.
constexpr std::int64_t kMaxSeq = std::int64_t{1} << 62;
constexpr std::int64_t kLeastInteger = std::numeric_limits<std::int64_t>::min();

double metric_from(const ValueReader& metric) {
  const Value& value = metric.value();
  if (const auto* real = value.get_if<double>()) return *real;
  if (const auto* whole = value.get_if<std::int64_t>()) return static_cast<double>(*whole);
  if (const auto* text = value.get_if<std::string>()) {
    if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (*text == "inf") return std::numeric_limits<double>::infinity();
    if (*text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  metric.fail(R"(a number, "nan", "inf" or "-inf")");
}

bool is_hex16(std::string_view text) {
  return text.size() == 16 && std::ranges::all_of(text, [](char c) {
           return base::is_digit(c) || (c >= 'a' && c <= 'f');
         });
}

CheckpointEntry entry_from(const ValueReader& reader) {
  CheckpointEntry entry;
  entry.name = reader.at("name").text();
  entry.path = reader.at("path").text();
  if (const auto rank = reader.find("rank")) entry.rank = rank->integer();
  const std::string folder = entry.rank ? rank_folder(*entry.rank) : "";
  if (!entry.path.starts_with(folder) || !is_entry_path(entry.path.substr(folder.size()))) {
    reader.at("path").fail(entry.rank ? "the name of a file or folder below " + base::quote(folder)
                                      : "the name of a file or folder in the step's folder");
  }
  entry.format = reader.at("format").text();
  if (const auto bare = reader.find("bare")) entry.is_bare = bare->flag();
  entry.num_bytes = reader.at("bytes").count();
  entry.checksum = reader.at("checksum").text();
  if (!is_hex16(entry.checksum)) reader.at("checksum").fail("16 hexadecimal digits");
  return entry;
}

std::vector<CheckpointRun> lineage_from(const ValueReader& reader, std::int64_t step) {
  std::vector<CheckpointRun> lineage;
  for (const ValueReader& item : reader.items()) {
    const auto pair = item.items(2);
    lineage.push_back({pair[0].text(), pair[1].integer(kLeastInteger)});
  }
  if (lineage.empty() || lineage.back().last_step != step) {
    throw reader.error().expected("step ", step, " in its last item").found("no such item");
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
      ",\n\"metrics\": " + json_of(std::move(metrics)) +
      ",\n\"extra\": " + member_json(info.extra) +
      ",\n\"versions\": " + member_json(info.versions) +
      ",\n\"world_size\": " + std::to_string(info.world_size) +
      (info.saved_ns ? ",\n\"saved_ns\": " + std::to_string(*info.saved_ns) : "") +
      ",\n\"entries\": [" + entries + (entries.empty() ? "]" : "\n]");
  const std::string checksum = checksum_of(text);
  text += std::string(kChecksumMember) + checksum + "\"\n}\n";
  if (text.size() > kMaxDocumentBytes) {
    throw base::unsupported(std::string(kDocumentName))
        .part("size")
        .expected("at most ", kMaxDocumentBytes, " bytes")
        .found(text.size())
        .remedy("store large values in the state, not in `extra`");
  }
  return text;
}

CheckpointInfo parse_document(std::string_view text, const std::string& where) {
  const Value document = from_json(text, where);
  const base::Where place(where);
  const ValueReader reader(document, place);
  if (!is_json(document)) {
    throw base::corrupt(where).expected("Unicode text").found("an unpaired surrogate");
  }
  if (reader.at("format").text() != kFormatName) {
    reader.at("format").fail(base::quote(kFormatName));
  }
  reader.at("version").require_version(kDocumentVersion);
  CheckpointInfo info;
  info.step = reader.at("step").integer();
  info.seq = reader.at("seq").integer();
  if (info.seq > kMaxSeq) reader.at("seq").fail("an integer of at most 2^62");
  info.lineage = lineage_from(reader.at("lineage"), info.step);
  info.time = reader.at("time").text();
  for (const auto& [name, metric] : reader.at("metrics").members()) {
    info.metrics[std::string(name)] = metric_from(metric);
  }
  if (const auto extra = reader.find("extra")) info.extra = extra->value();
  if (const auto versions = reader.find("versions")) info.versions = versions->value();
  info.world_size = reader.at("world_size").integer(1);
  if (const auto saved = reader.find("saved_ns")) info.saved_ns = saved->integer(kLeastInteger);
  std::set<std::pair<std::int64_t, std::string>> names;  // rank (-1: all ranks) and name
  std::set<std::string> paths;
  for (const ValueReader& item : reader.at("entries").items()) {
    CheckpointEntry entry = entry_from(item);
    if (entry.rank && *entry.rank >= info.world_size) {
      throw item.at("rank")
          .error()
          .expected("less than the world size ", info.world_size)
          .found(*entry.rank);
    }
    const bool is_new = names.emplace(entry.rank.value_or(-1), entry.name).second &&
                        paths.insert(entry.path).second;
    if (!is_new) {
      throw item.error()
          .expected("each name and path once")
          .found(base::quote(entry.name), " (", base::quote(entry.path), ") again");
    }
    info.entries.push_back(std::move(entry));
  }
  return info;
}

bool has_valid_checksum(std::string_view text) {
  const std::size_t at = text.rfind(kChecksumMember);
  return at == std::string_view::npos ||
         text.substr(at + kChecksumMember.size(), 16) == checksum_of(text.substr(0, at));
}

void require_checksum(std::string_view text, const std::string& where) {
  if (has_valid_checksum(text)) return;
  const std::size_t at = text.rfind(kChecksumMember);
  throw base::corrupt(where)
      .part("checksum")
      .expected(checksum_of(text.substr(0, at)))
      .found(base::quote(text.substr(at + kChecksumMember.size(), 16)))
      .remedy("the file is damaged, or was edited by hand");
}

}  // namespace tenfold::checkpoint
