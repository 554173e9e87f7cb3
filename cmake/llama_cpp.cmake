# Imports the pinned llama.cpp build that scripts/deps.sh keeps outside the checkout (docs/adr/0001).
# Defines llama::llama, llama::common, llama::httplib and llama::json (nlohmann/json, headers only), all headers
# SYSTEM, and the pin as VARVE_LLAMA_PACKAGE, VARVE_LLAMA_VERSION, VARVE_LLAMA_SHA256.

set(_deps_args "")
if(NOT VARVE_NATIVE)
  list(APPEND _deps_args --portable)
endif()
execute_process(
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/deps.sh ${_deps_args}
  OUTPUT_VARIABLE _deps_out RESULT_VARIABLE _deps_rc OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _deps_rc EQUAL 0)
  message(FATAL_ERROR "scripts/deps.sh failed (exit ${_deps_rc}); its messages are above")
endif()
string(REGEX REPLACE ".*\n" "" VARVE_LLAMA_DIR "${_deps_out}")
foreach(_name package version sha256)
  file(STRINGS ${CMAKE_SOURCE_DIR}/scripts/deps.sh _line REGEX "^${_name}=" LIMIT_COUNT 1)
  string(TOUPPER ${_name} _upper)
  string(REGEX REPLACE "^${_name}=" "" VARVE_LLAMA_${_upper} "${_line}")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scripts/deps.sh)
set(_src ${VARVE_LLAMA_DIR}/src)
set(_build ${VARVE_LLAMA_DIR}/build)

function(_import name path)
  add_library(${name} STATIC IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${path})
endfunction()

find_package(Threads REQUIRED)
_import(llama::ggml_base ${_build}/ggml/src/libggml-base.a)
_import(llama::ggml_cpu ${_build}/ggml/src/libggml-cpu.a)
_import(llama::ggml ${_build}/ggml/src/libggml.a)
_import(llama::llama ${_build}/src/libllama.a)
_import(llama::common_base ${_build}/common/libllama-common-base.a)
_import(llama::common ${_build}/common/libllama-common.a)
_import(llama::httplib ${_build}/vendor/cpp-httplib/libcpp-httplib.a)

target_link_libraries(llama::ggml_base INTERFACE Threads::Threads m dl)
target_link_libraries(llama::ggml_cpu INTERFACE llama::ggml_base)
target_link_libraries(llama::ggml INTERFACE llama::ggml_cpu llama::ggml_base)
target_include_directories(llama::ggml SYSTEM INTERFACE ${_src}/ggml/include)
target_link_libraries(llama::llama INTERFACE llama::ggml)
target_include_directories(llama::llama SYSTEM INTERFACE ${_src}/include ${_src}/src)
target_link_libraries(llama::common INTERFACE llama::common_base llama::llama llama::httplib)
target_include_directories(llama::common SYSTEM INTERFACE ${_src}/common ${_src}/vendor)
target_include_directories(llama::httplib SYSTEM INTERFACE ${_src}/vendor)
add_library(llama::json INTERFACE IMPORTED GLOBAL)
target_include_directories(llama::json SYSTEM INTERFACE ${_src}/vendor)
