#include "formats/shared/hub_index.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "core/tree/key_index.hpp"
#include "formats/shared/hub_cache.hpp"

namespace tenfold::detail::formats {
namespace {

/// True for a name that can only refer to an entry of the folder itself.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

class IndexHandler final : public codecs::JsonHandler {
 public:
  IndexHandler(HubIndex& index, const std::string& where) : index_(index), where_(where) {}

  void finish() const {
    if (!seen_weight_map_) fail("\"weight_map\"", "is missing", "an object", "none");
  }

  void null() override { scalar("null"); }
  void boolean(bool value) override { scalar(value ? "true" : "false"); }
  void integer(std::int64_t) override { scalar("a number"); }
  void big_integer(std::string_view) override { scalar("a number"); }
  void number(double) override { scalar("a number"); }
  void string(std::string_view value) override {
    if (skip_depth_ > 0) return;
    if (state_ == State::metadata) {
      index_.metadata.insert_or_assign(key_, std::string(value));
    } else if (state_ == State::weight_map) {
      add(value);
    } else {
      scalar("a string");
    }
  }
  void begin_object() override {
    if (skip_depth_ > 0 || state_ == State::metadata) {
      ++skip_depth_;
    } else if (state_ == State::start) {
      state_ = State::members;
    } else if (state_ == State::members && key_ == "metadata") {
      state_ = State::metadata;
    } else if (state_ == State::members && key_ == "weight_map") {
      if (seen_weight_map_) fail("\"weight_map\"", "is duplicated", "it once", "two");
      seen_weight_map_ = true;
      state_ = State::weight_map;
    } else {
      container("an object");
    }
  }
  void key(std::string_view value) override {
    if (skip_depth_ == 0) key_ = value;
  }
  void end_object() override {
    if (skip_depth_ > 0) {
      --skip_depth_;
    } else {
      state_ = State::members;
    }
  }
  void begin_array() override {
    if (skip_depth_ > 0 || state_ == State::metadata) {
      ++skip_depth_;
    } else {
      container("an array");
    }
  }
  void end_array() override { --skip_depth_; }

 private:
  enum class State : std::uint8_t { start, members, metadata, weight_map };

  [[noreturn]] void fail(std::string_view part, std::string_view what, std::string_view expected,
                         std::string_view found) const {
    throw base::corrupt(where_).part(part).problem(what).expected(expected).found(found);
  }

  /// Skips a container that is the value of a member other than "weight_map". Throws if an object
  /// or array is at any other place.
  void container(std::string_view found) {
    check_place(found);
    ++skip_depth_;
  }
  void scalar(std::string_view found) {
    if (skip_depth_ == 0 && state_ != State::metadata) check_place(found);
  }
  void check_place(std::string_view found) const {
    if (state_ == State::start) fail("the document", "has the wrong type", "an object", found);
    if (state_ == State::weight_map) {
      fail("tensor " + base::quote(key_), "the name of its file has the wrong type", "a string",
           found);
    }
    if (key_ == "weight_map") fail("\"weight_map\"", "has the wrong type", "an object", found);
  }

  void add(std::string_view file) {
    const std::string part = "tensor " + base::quote(key_);
    if (file.empty()) {
      fail(part, "the name of its file is empty", "the name of a file next to the index", "\"\"");
    }
    if (!is_plain_file_name(file)) {
      fail(part, "its file leads out of the folder", "the name of a file next to the index",
           base::quote(file));
    }
    const auto [shard, is_new] = shards_.emplace(file, index_.shards.size());
    if (is_new) index_.shards.emplace_back(file);
    index_.weight_map.emplace_back(key_, static_cast<std::uint32_t>(shard->second));
    const auto position = static_cast<std::uint32_t>(index_.weight_map.size() - 1);
    const auto key_at = [this](std::uint32_t i) -> std::string_view {
      return index_.weight_map[i].first;
    };
    if (names_.insert(key_, position, key_at) != KeyIndex::kNone) {
      fail(part, "its name is duplicated", "it once", "two");
    }
  }

  HubIndex& index_;
  const std::string& where_;
  State state_ = State::start;
  std::string key_;
  std::size_t skip_depth_ = 0;
  bool seen_weight_map_ = false;
  std::map<std::string, std::size_t, std::less<>> shards_;
  KeyIndex names_;
};

std::string json_string(std::string_view text) {
  codecs::JsonWriter writer(codecs::JsonStyle::utf8_compact);
  writer.string(text);
  return writer.take();
}

}  // namespace

HubIndex parse_hub_index(std::string_view text, const std::string& where) {
  HubIndex index;
  IndexHandler handler(index, where);
  codecs::parse_json(text, where, handler);
  handler.finish();
  return index;
}

os::Directory folder_of_shards(const os::Path& path, const HubIndex& index) {
  const auto folder_of = [](const os::Path& file) {
    return os::Directory::open(file.has_parent_path() ? file.parent_path() : os::Path("."));
  };
  const os::Path target = os::resolve_link(path);
  if (target == path) return folder_of(path);
  os::Directory folder = folder_of(target);
  const auto is_there = [&](const std::string& name) {
    return folder.entry_info(name).has_value();
  };
  return std::ranges::any_of(index.shards, is_there) ? std::move(folder) : folder_of(path);
}

std::vector<os::File> open_indexed(const os::Directory& folder, const HubIndex& index,
                                   const std::string& where) {
  std::vector<os::File> shards;
  for (const std::string& name : index.shards) {
    shards.push_back(open_shard(folder, name, where));
    if (shards.back().valid()) continue;
    throw base::corrupt(where)
        .part("shard ", base::quote(name))
        .problem("missing")
        .expected("a file next to the index")
        .found("none");
  }
  return shards;
}

Error not_in_shard(const std::string& name, const std::string& shard, const std::string& where) {
  return base::corrupt(where)
      .part("tensor ", base::quote(name))
      .problem("missing in its shard")
      .expected("a tensor in ", base::quote(shard))
      .found("none");
}

// Uses the line breaks and indentation of json.dumps(index, indent=2), because people read these
// files.
std::string write_hub_index(const HubIndex& index, std::uint64_t total_size_bytes) {
  std::string text = "{\n  \"metadata\": {\n";
  for (const auto& [key, value] : index.metadata) {
    text += "    " + json_string(key) + ": " + json_string(value) + ",\n";
  }
  text += "    \"total_size\": " + std::to_string(total_size_bytes) + "\n  },\n";
  text += "  \"weight_map\": {";
  const char* separator = "\n";
  for (const auto& [name, shard] : index.weight_map) {
    text += separator;
    text += "    " + json_string(name) + ": " + json_string(index.shards[shard]);
    separator = ",\n";
  }
  text += index.weight_map.empty() ? "}\n}\n" : "\n  }\n}\n";
  return text;
}

}  // namespace tenfold::detail::formats
