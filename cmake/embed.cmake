# Embeds a text file as a C string: varve_embed(OUTPUT_CC INPUT NAMESPACE SYMBOL).
function(varve_embed output input namespace symbol)
  file(READ ${input} EMBEDDED_TEXT)
  set(EMBEDDED_NAMESPACE ${namespace})
  set(EMBEDDED_SYMBOL ${symbol})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${input})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embed.cc.in ${output} @ONLY)
endfunction()
