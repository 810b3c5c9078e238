#include "scan/risk.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "core/tensor/torch_names.hpp"

namespace tenfold {
namespace {

using NameSpan = std::span<const std::string_view>;

/// Modules with functions that run code, start processes, import modules, read or write files, or
/// use the network, and modules that give access to such functions.
constexpr auto kDangerousModules = std::to_array<std::string_view>({"os",
                                                                    "posix",
                                                                    "nt",
                                                                    "posixpath",
                                                                    "ntpath",
                                                                    "subprocess",
                                                                    "_posixsubprocess",
                                                                    "sys",
                                                                    "runpy",
                                                                    "commands",
                                                                    "popen2",
                                                                    "pty",
                                                                    "platform",
                                                                    "signal",
                                                                    "multiprocessing",
                                                                    "_multiprocessing",
                                                                    "concurrent",
                                                                    "threading",
                                                                    "_thread",
                                                                    "asyncio",
                                                                    "sched",
                                                                    "atexit",
                                                                    "faulthandler",
                                                                    "ctypes",
                                                                    "_ctypes",
                                                                    "cffi",
                                                                    "mmap",
                                                                    "resource",
                                                                    "fcntl",
                                                                    "gc",
                                                                    "inspect",
                                                                    "types",
                                                                    "code",
                                                                    "codeop",
                                                                    "compileall",
                                                                    "py_compile",
                                                                    "ast",
                                                                    "dis",
                                                                    "symtable",
                                                                    "importlib",
                                                                    "_frozen_importlib",
                                                                    "_frozen_importlib_external",
                                                                    "imp",
                                                                    "_imp",
                                                                    "pkgutil",
                                                                    "zipimport",
                                                                    "zipapp",
                                                                    "modulefinder",
                                                                    "site",
                                                                    "sitecustomize",
                                                                    "usercustomize",
                                                                    "ensurepip",
                                                                    "pip",
                                                                    "_pip",
                                                                    "venv",
                                                                    "distutils",
                                                                    "setuptools",
                                                                    "pkg_resources",
                                                                    "pickle",
                                                                    "_pickle",
                                                                    "cPickle",
                                                                    "dill",
                                                                    "cloudpickle",
                                                                    "joblib",
                                                                    "pickletools",
                                                                    "marshal",
                                                                    "shelve",
                                                                    "dbm",
                                                                    "jsonpickle",
                                                                    "yaml",
                                                                    "io",
                                                                    "_io",
                                                                    "codecs",
                                                                    "fileinput",
                                                                    "linecache",
                                                                    "tempfile",
                                                                    "shutil",
                                                                    "glob",
                                                                    "pathlib",
                                                                    "zipfile",
                                                                    "tarfile",
                                                                    "gzip",
                                                                    "bz2",
                                                                    "lzma",
                                                                    "sqlite3",
                                                                    "_sqlite3",
                                                                    "logging",
                                                                    "socket",
                                                                    "_socket",
                                                                    "socketserver",
                                                                    "ssl",
                                                                    "select",
                                                                    "selectors",
                                                                    "http",
                                                                    "httplib",
                                                                    "urllib",
                                                                    "urllib2",
                                                                    "urllib3",
                                                                    "requests",
                                                                    "httpx",
                                                                    "aiohttp",
                                                                    "ftplib",
                                                                    "smtplib",
                                                                    "poplib",
                                                                    "imaplib",
                                                                    "nntplib",
                                                                    "telnetlib",
                                                                    "xmlrpc",
                                                                    "webbrowser",
                                                                    "antigravity",
                                                                    "wsgiref",
                                                                    "cgi",
                                                                    "cgitb",
                                                                    "pydoc",
                                                                    "doctest",
                                                                    "unittest",
                                                                    "test",
                                                                    "pytest",
                                                                    "_pytest",
                                                                    "nose",
                                                                    "timeit",
                                                                    "_testcapi",
                                                                    "_testinternalcapi",
                                                                    "_xxsubinterpreters",
                                                                    "pdb",
                                                                    "bdb",
                                                                    "trace",
                                                                    "profile",
                                                                    "cProfile",
                                                                    "lib2to3",
                                                                    "idlelib",
                                                                    "turtle",
                                                                    "tkinter",
                                                                    "curses",
                                                                    "readline",
                                                                    "winreg",
                                                                    "_winapi",
                                                                    "msvcrt",
                                                                    "operator",
                                                                    "_operator",
                                                                    "functools",
                                                                    "_functools",
                                                                    "itertools",
                                                                    "weakref",
                                                                    "IPython",
                                                                    "pandas",
                                                                    "tensorflow",
                                                                    "keras",
                                                                    "nltk",
                                                                    "numexpr",
                                                                    "fsspec"});

/// Dangerous parts of packages whose other unknown globals are only suspicious.
constexpr auto kDangerousParts = std::to_array<std::string_view>({
    "torch.hub",
    "torch.load",
    "torch.save",
    "torch.package",
    "torch.compile",
    "torch.serialization.load",
    "torch.serialization.save",
    "torch.serialization._load",
    "torch.serialization._legacy_load",
    "torch.storage._load_from_bytes",
    "torch.jit",
    "torch.ops",
    "torch._ops",
    "torch.classes",
    "torch._classes",
    "torch._C",
    "torch._dynamo",
    "torch._inductor",
    "torch.onnx",
    "torch.fx",
    "torch.export",
    "torch.distributed",
    "torch.multiprocessing",
    "torch.testing",
    "torch.utils.cpp_extension",
    "torch.utils.bottleneck",
    "torch.utils.collect_env",
    "torch.utils.model_zoo",
    "torch.utils.model_dump",
    "torch.utils._config_module",
    "torch.utils.data.datapipes",
    "torch.utils.data._utils",
    "torch.library",
    "torch._library",
    "torch.cuda.memory",
    "torch.from_file",
});

/// Python built-ins that only make plain values. `type` and `object` are not in the list, because
/// they give access to every class.
constexpr auto kPlainBuiltins = std::to_array<std::string_view>(
    {"bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "range",
     "set", "slice", "str", "tuple", "unicode", "long", "NoneType"});

constexpr auto kSafe = std::to_array<std::string_view>({
    "collections.OrderedDict",
    "collections.Counter",
    "collections.defaultdict",
    "collections.deque",
    "_codecs.encode",
    "torch.Size",
    "torch.device",
    "torch.Tensor",
    "torch.strided",
    "torch.serialization._get_layout",
    "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
    "torch.storage.TypedStorage",
    "torch.storage.UntypedStorage",
    "torch._tensor._rebuild_from_type_v2",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor",
    "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_wrapper_subclass",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._utils._rebuild_device_tensor_from_numpy",
    "numpy.ndarray",
    "numpy.dtype",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy._core.numeric._frombuffer",
    "numpy.core.numeric._frombuffer",
    // Globals in the metadata of torch.distributed.checkpoint that make only plain values.
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "pathlib.PosixPath",
});

bool among(NameSpan names, std::string_view wanted) {
  return std::find(names.begin(), names.end(), wanted) != names.end();
}

/// True if `global` is one of `names`, or below one, as "os.path.join" is below "os".
bool has_prefix_in(NameSpan names, std::string_view global) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view outer) {
    return global.starts_with(outer) &&
           (global.size() == outer.size() || global[outer.size()] == '.');
  });
}

/// True for torch.FloatStorage, torch.cuda.LongTensor, ...
bool is_typed_class(std::string_view module, std::string_view name) {
  const bool of_torch = module == "torch" || module == "torch.cuda" || module == "torch.sparse" ||
                        module == "torch.cuda.sparse";
  const bool is_typed = name.ends_with("Storage") || name.ends_with("Tensor");
  return of_torch && is_typed && name.find('.') == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
         });
}

}  // namespace

ScanRisk risk_of_global(std::string_view module, std::string_view name) {
  const std::string global = std::string(module) + "." + std::string(name);
  if (module == "builtins" || module == "__builtin__" || module == "__builtins__") {
    return among(kPlainBuiltins, name) ? ScanRisk::safe : ScanRisk::dangerous;
  }
  if (among(kSafe, global)) return ScanRisk::safe;
  if (module == "torch" && (is_torch_dtype(name) || is_torch_qscheme(name))) return ScanRisk::safe;
  if (is_typed_class(module, name)) return ScanRisk::safe;
  if (module == "numpy.dtypes" && name.ends_with("DType") &&
      name.find('.') == std::string_view::npos) {
    return ScanRisk::safe;
  }
  if (has_prefix_in(kDangerousModules, global) || has_prefix_in(kDangerousParts, global)) {
    return ScanRisk::dangerous;
  }
  // The array constructors of numpy were accepted above. Many other functions of numpy open files
  // or compile code.
  if (module == "numpy" || module.starts_with("numpy.")) return ScanRisk::dangerous;
  // A dotted name can access the imports of a module: `collections._sys.modules`.
  if (name.find('.') != std::string_view::npos || name.starts_with("__")) {
    return ScanRisk::dangerous;
  }
  return ScanRisk::suspicious;
}

}  // namespace tenfold
