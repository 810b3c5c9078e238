#include "mapper/hierarchy_json.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <unordered_map>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "formats/shared/commit.hpp"
#include "mapper/hierarchy_builder.hpp"
#include "os/fs/file.hpp"

namespace tenfold {
namespace {

constexpr std::string_view kJsonHead = "%state_mapper";
constexpr std::string_view kTensor = "%tensor";
constexpr std::string_view kUsualDefault = "default";
/// Maximum number of elements of a tensor in a saved file, which people should be able to read.
constexpr std::int64_t kMaxNumbers = 65'536;

bool has_json_form(DType dtype) { return !is_complex(dtype) && dtype != DType::float4_e2m1fn_x2; }

// --- reading ---

/// Adds the levels of a document to a builder.
class JsonLevels {
 public:
  JsonLevels(HierarchyBuilder& builder, bool is_escaped)
      : builder_(builder), is_escaped_(is_escaped) {}

  /// Adds a level and those below it. The recursion ends, because the JSON reader limits the depth.
  void add(const Value::Object& level, bool is_root) {
    for (const auto& [stored_key, value] : level.members) {
      if (is_escaped_ && is_root && stored_key == kJsonHead) continue;
      const std::string key = key_of(stored_key);
      const auto* object = value.get_if<Value::Object>();
      if (object == nullptr) {
        builder_.add(key, value);
      } else if (is_escaped_ && object->find(kTensor) != nullptr) {
        add_tensor(key, *object);
      } else {
        builder_.begin_level(key);
        add(*object, false);
        builder_.end_level();
      }
    }
  }

 private:
  std::string key_of(std::string_view stored_key) const {
    if (!is_escaped_ || !stored_key.starts_with('%')) return std::string(stored_key);
    if (stored_key.starts_with("%%")) return std::string(stored_key.substr(1));
    throw builder_.fail_at(stored_key)
        .expected("\"", kTensor, "\" or a key, in which \"%%\" stands for a \"%\" at the beginning")
        .found(base::quote(stored_key));
  }

  void add_tensor(std::string_view key, const Value::Object& object) {
    const Value& type = *object.find(kTensor);
    const auto* name = type.get_if<std::string>();
    const auto dtype = name == nullptr ? std::nullopt : dtype_from_name(*name);
    if (!dtype || !has_json_form(*dtype)) {
      throw builder_.fail_at(key)
          .part("dtype")
          .expected("a dtype of real numbers")
          .found(short_json(type));
    }
    const Value* values = object.find("values");
    const Shape shape = shape_of(key, object.find("shape"), *dtype);
    const auto numbers = values == nullptr ? std::nullopt : json_numbers(*values);
    // If a dimension has length 0, nested lists cannot represent the dimensions after it.
    const bool is_empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    const bool fits = numbers && (is_empty ? numbers->floats.empty() : numbers->shape == shape);
    if (!fits) {
      throw builder_.fail_at(key)
          .part("values")
          .expected("numbers of shape ", base::list_text(shape))
          .found((numbers ? base::list_text(numbers->shape)
                          : std::string(values == nullptr ? "none" : "other JSON")));
    }
    if (is_integer(*dtype) && numbers->dtype == DType::float64) {
      throw builder_.fail_at(key).part("values").expected(to_string(*dtype)).found("floats");
    }
    const bool has_bools = numbers->dtype == DType::bool_;
    if (!numbers->floats.empty() && has_bools != (*dtype == DType::bool_)) {
      throw builder_.fail_at(key)
          .part("values")
          .expected(to_string(*dtype))
          .found(has_bools ? "bools" : "numbers");
    }
    builder_.add(key, *numbers, *dtype, shape);
  }

  Shape shape_of(std::string_view key, const Value* lengths, DType dtype) const {
    const auto* list = lengths == nullptr ? nullptr : lengths->get_if<Value::List>();
    Shape shape;
    bool is_shape = list != nullptr;
    if (is_shape) {
      for (const Value& length : list->items) {
        const auto* number = length.get_if<std::int64_t>();
        is_shape = is_shape && number != nullptr && *number >= 0;
        shape.push_back(is_shape ? *number : 0);
      }
    }
    if (is_shape) {
      try {
        nbytes_of(dtype, shape);
      } catch (const Error&) {
        throw builder_.fail_at(key)
            .part("shape")
            .expected("at most 2^63 - 1 bytes")
            .found(base::list_text(shape));
      }
      return shape;
    }
    throw builder_.fail_at(key)
        .part("shape")
        .expected("a list of lengths")
        .found((lengths == nullptr ? std::string("none") : short_json(*lengths)));
  }

  HierarchyBuilder& builder_;
  bool is_escaped_;
};

/// The default key that the header of the file names; nullopt if the file has no header.
std::optional<std::string> default_key_of(const Value::Object& root, const std::string& where) {
  const Value* head = root.find(kJsonHead);
  if (head == nullptr) return std::nullopt;
  const auto* object = head->get_if<Value::Object>();
  const Value* version = object == nullptr ? nullptr : object->find("version");
  const auto* number = version == nullptr ? nullptr : version->get_if<std::int64_t>();
  if (number == nullptr) {
    throw base::corrupt(where)
        .part(kJsonHead, ": version")
        .expected("an int")
        .found((version == nullptr ? std::string("none") : short_json(*version)));
  }
  if (*number != 1) {
    throw base::unsupported(where)
        .part(kJsonHead, ": version")
        .expected("1")
        .found(*number)
        .remedy("use a newer version of tenfold");
  }
  const Value* key = object->find("default_key");
  const auto* text = key == nullptr ? nullptr : key->get_if<std::string>();
  if (text != nullptr) return *text;
  throw base::corrupt(where)
      .part(kJsonHead, ": default_key")
      .expected("a string")
      .found((key == nullptr ? std::string("none") : short_json(*key)));
}

// --- writing ---

/// Writes levels. Each member begins on a new line, and each value is on one line.
class JsonLevelWriter {
 public:
  explicit JsonLevelWriter(const Hierarchy& hierarchy, const Path& where)
      : hierarchy_(hierarchy), where_(where) {
    std::unordered_map<std::string, std::size_t> level_numbers = {{"", 0}};
    levels_.emplace_back();
    bool is_plain = hierarchy.default_key() == kUsualDefault;
    for (const HierarchyTable& table : hierarchy.tables()) {
      is_plain = is_plain && table.origin != ValueOrigin::tensor;
    }
    hierarchy.for_each([&](const StatePaths::Node& node) {
      Member member{std::string(node.path), node.key_begin(), node.place, 0};
      is_plain = is_plain && !member.key().starts_with('%');
      if (node.is_level) {
        member.level = levels_.size();
        level_numbers.emplace(member.path, member.level);
        levels_.emplace_back();
      }
      levels_[level_numbers.at(std::string(node.parent()))].push_back(std::move(member));
    });
    is_plain_ = is_plain;
  }

  std::string text() {
    write_level(0, 1);
    return std::move(text_) + "\n";
  }

 private:
  struct Member {
    std::string path;
    std::size_t key_begin;  ///< in `path`
    StatePlace place;
    std::size_t level;  ///< number of the level; 0: a value

    std::string_view key() const { return std::string_view(path).substr(key_begin); }
  };

  void write_level(std::size_t number, std::size_t depth) {
    const std::string separator = ",\n" + std::string(4 * depth, ' ');
    bool is_first = true;
    const auto begin_member = [&](std::string_view key) {
      text_ += is_first ? "{" : ",";
      text_ += std::string_view(separator).substr(1);
      text_ += to_json(Value(key)) + ": ";
      is_first = false;
    };
    if (number == 0 && !is_plain_) {
      begin_member(kJsonHead);
      text_ += R"({"version": 1, "default_key": )" + to_json(Value(hierarchy_.default_key())) + "}";
    }
    for (const Member& member : levels_[number]) {
      const bool is_escaped = !is_plain_ && member.key().starts_with('%');
      begin_member((is_escaped ? "%" : "") + std::string(member.key()));
      if (member.level != 0) {
        write_level(member.level, depth + 1);
      } else {
        text_ += value_text(member);
      }
    }
    text_ += is_first ? "{}" : "\n" + std::string(4 * (depth - 1), ' ') + "}";
  }

  std::string value_text(const Member& member) const {
    if (member.place.table == kMapperTable) {
      throw refuse(member)
          .problem("one JSON file can only store numbers, tensors and JSON")
          .expected("no mapper among the values")
          .found("a mapper")
          .remedy("save to a folder");
    }
    if (member.place.table < 0) return to_json(hierarchy_.value(member.place));
    const HierarchyTable& table = hierarchy_.tables()[static_cast<std::size_t>(member.place.table)];
    if (table.origin != ValueOrigin::tensor) return to_json(hierarchy_.value(member.place));
    const DType dtype = table.values.dtype();
    if (!has_json_form(dtype)) {
      throw refuse(member)
          .problem("JSON has no ", to_string(dtype))
          .expected("integers or floats")
          .remedy("save to a folder");
    }
    const Shape shape(table.values.shape().begin() + 1, table.values.shape().end());
    if (const std::int64_t size = numel_of(shape); size > kMaxNumbers) {
      throw refuse(member)
          .problem("the tensor is too large for one JSON file")
          .expected("at most 65,536 numbers")
          .found(size)
          .remedy("save to a folder");
    }
    Value::Object object;
    object.members.emplace_back(std::string(kTensor), Value(to_string(dtype)));
    Value::List lengths;
    for (const std::int64_t length : shape) lengths.items.emplace_back(length);
    object.members.emplace_back("shape", Value(std::move(lengths)));
    object.members.emplace_back("values", hierarchy_.value(member.place));
    return to_json(Value(std::move(object)));
  }

  Error refuse(const Member& member) const {
    return base::unsupported(where_).part(base::quote(member.path));
  }

  const Hierarchy& hierarchy_;
  Path where_;
  bool is_plain_ = true;
  std::vector<std::vector<Member>> levels_;
  std::string text_;
};

}  // namespace

bool is_shard_index(const Path& path) { return path.string().ends_with(".safetensors.index.json"); }

std::optional<std::string> hierarchy_json_text(const Path& path) {
  std::error_code none;  // ignored: opening the file later reports the error
  if (is_shard_index(path) || !std::filesystem::is_regular_file(path, none)) return std::nullopt;
  const os::File file = os::File::open_read(path);
  std::string start(64, '\0');
  start.resize(file.read_some_at(0, std::as_writable_bytes(std::span(start))));
  const std::size_t mark = start.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  const std::size_t begin = start.find_first_not_of(" \t\r\n", mark);
  if (begin == std::string::npos || start[begin] != '{') return std::nullopt;
  // A safetensors file begins with the length of its header as a 64-bit integer. The bytes of a
  // length such as 31,520 are " {" and zeros.
  if (start.find('\0') != std::string::npos) return std::nullopt;
  return file.read_all(std::numeric_limits<std::uint64_t>::max()).substr(mark);
}

std::pair<MapperHead, TensorDict> parse_hierarchy_json(std::string_view text,
                                                       const std::string& where) {
  const Value document = from_json(text, where);
  const auto* root = document.get_if<Value::Object>();
  if (root == nullptr) {
    throw base::corrupt(where).part("JSON").expected("an object").found("a ", document.type_name());
  }
  const std::optional<std::string> default_key = default_key_of(*root, where);
  HierarchyBuilder builder(default_key.value_or(std::string(kUsualDefault)), where,
                           ErrorCode::corrupt);
  JsonLevels(builder, default_key.has_value()).add(*root, true);
  auto [config, tensors] = builder.build();
  MapperHead head;
  head.where = where;
  head.class_name = kHierarchyClass;
  head.config = std::move(config);
  return {std::move(head), std::move(tensors)};
}

void save_hierarchy_json(const Hierarchy& hierarchy, const Path& path, bool durable,
                         bool overwrite) {
  const std::string text = JsonLevelWriter(hierarchy, path).text();
  detail::formats::refuse_existing(path, overwrite);
  detail::formats::replace_file(path, text, durable);
}

}  // namespace tenfold
