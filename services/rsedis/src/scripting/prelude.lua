-- What every script sees. `host` is the server's side: `call` while a script runs, `register` while a library is loaded.
local host, lua = ...

-- What getmetatable says of everything that is not a script's own.
local locked = {}
local function refuse() error("Attempt to modify a readonly table", 2) end
setmetatable(locked, {__newindex = refuse, __metatable = locked})
getmetatable("").__metatable = locked
local find, gsub, match = string.find, string.gsub, string.match

local function readonly(table_, missing)
    return setmetatable({}, {
        __index = function(_, key)
            local value = table_[key]
            if value == nil and missing then
                error(missing .. "'" .. tostring(key) .. "'", 2)
            end
            return value
        end,
        __newindex = refuse,
        __metatable = locked,
    })
end

-- What was raised, as a script may see it.
local function plain(problem)
    if type(problem) == "userdata" then return host.plain(problem) end
    return problem
end

-- The line of the script that called a function of this file, or of the server's.
local function place()
    for level = 3, 8 do
        local _, text = pcall(error, "", level)
        local source, line = match(tostring(text), "^(user_%a+):(%d+):")
        if source then return "@" .. source, line end
    end
end

local redis = {call = host.call, pcall = host.pcall}

function redis.error_reply(text)
    if type(text) ~= "string" then
        return {err = "ERR wrong number or type of arguments"}
    end
    text = gsub(text, "^%-", "")
    if not find(text, " ", 1, true) then text = "ERR " .. text end
    return {err = text}
end

function redis.status_reply(text)
    if type(text) ~= "string" then
        return {err = "ERR wrong number or type of arguments"}
    end
    return {ok = text}
end

function redis.sha1hex(...)
    if select("#", ...) ~= 1 then error({err = "ERR wrong number of arguments"}, 0) end
    return host.sha1hex(tostring((...)))
end

function redis.log(level, ...)
    if type(level) ~= "number" or select("#", ...) < 1 then
        error({err = "ERR redis.log() requires two arguments or more."}, 0)
    end
    if level < 0 or level > 3 then error({err = "ERR Invalid log level."}, 0) end
    local words = {...}
    for at, word in ipairs(words) do words[at] = tostring(word) end
    host.log(level, table.concat(words, " "))
end

function redis.setresp(version)
    if version ~= 2 and version ~= 3 then error({err = "ERR RESP version must be 2 or 3."}, 0) end
    host.setresp(version)
end

function redis.set_repl(flags)
    if type(flags) ~= "number" or flags < 0 or flags > 3 then
        error({err = "ERR Invalid replication flags. Please use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."}, 0)
    end
    host.set_repl(flags)
end

function redis.replicate_commands() return true end
redis.breakpoint, redis.debug = host.breakpoint, host.debug

function redis.acl_check_cmd(...)
    local known = host.is_command(...)
    if not known then error({err = "ERR Invalid command passed to redis.acl_check_cmd()"}, 0) end
    return host.is_allowed(...)
end

redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING = 0, 1, 2, 3
redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA, redis.REPL_ALL = 0, 1, 2, 2, 3
redis.REDIS_VERSION, redis.REDIS_VERSION_NUM = host.version, host.version_number

local function text_only(load_text)
    return function(chunk, ...)
        if type(chunk) == "string" and chunk:byte(1) == 27 then
            return nil, "attempt to load a binary chunk"
        end
        return load_text(chunk, ...)
    end
end

-- Lua's own overflows where the indices are far apart.
local function checked_unpack(list, from, to)
    -- A whole list is what Lua's own takes the most of.
    if from == nil and to == nil then return unpack(list) end
    from, to = tonumber(from) or 1, tonumber(to) or #list
    if not (to - from < 7900) then error("too many results to unpack", 2) end
    return unpack(list, from, to)
end

local function unless_locked(change)
    return function(table_, ...)
        if rawequal(getmetatable(table_), locked) then error("Attempt to modify a readonly table", 2) end
        return change(table_, ...)
    end
end

-- What ends a script must not be caught by it.
local function pass_on(is_well, ...)
    if is_well then return is_well, ... end
    if host.is_over() then error((...), 0) end
    return false, plain((...))
end
-- Of an error reply that is caught its text is left, as in Redis.
local function text_of(is_well, problem, ...)
    if not is_well and type(problem) == "table" and type(rawget(problem, "err")) == "string" then return false, problem.err end
    return is_well, problem, ...
end
local function checked_pcall(...) return text_of(pass_on(pcall(...))) end
local function checked_xpcall(callback, handler)
    return pass_on(xpcall(callback, function(problem) return handler(plain(problem)) end))
end
local coroutines = {
    create = coroutine.create, status = coroutine.status, running = coroutine.running, wrap = coroutine.wrap,
    yield = coroutine.yield, resume = function(...) return pass_on(coroutine.resume(...)) end,
}

local globals = {
    xpcall = checked_xpcall, pcall = checked_pcall, error = error, assert = assert, tostring = tostring, tonumber = tonumber, type = type,
    next = next, pairs = pairs, ipairs = ipairs, select = select, unpack = checked_unpack, rawget = rawget, rawset = unless_locked(rawset),
    rawequal = rawequal, setmetatable = unless_locked(setmetatable), getmetatable = getmetatable, collectgarbage = collectgarbage,
    loadstring = text_only(loadstring), _VERSION = _VERSION,
    string = readonly(string), table = readonly(table), math = readonly(math), coroutine = readonly(coroutines),
    os = readonly({clock = os.clock}),
    redis = readonly(redis), cjson = readonly(host.cjson), bit = readonly(host.bit), cmsgpack = readonly(host.cmsgpack),
    struct = readonly(host.struct),
}
globals.server = globals.redis
if host.has_deprecated then globals.getfenv, globals.setfenv, globals.newproxy = getfenv, setfenv, newproxy end

local MISSING = "Script attempted to access nonexistent global variable "
local script_env = readonly(globals, MISSING)
globals._G = script_env

-- While a library is loaded it may register functions, and call nothing.
local is_loading = false
local loading_redis = {
    register_function = function(...)
        if not is_loading then error("redis.register_function can only be called on FUNCTION LOAD command", 2) end
        local problem = host.register(...)
        if problem then error({err = "ERR " .. problem}, 0) end
    end,
    log = redis.log, LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REDIS_VERSION = redis.REDIS_VERSION, REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM,
}
local library_redis = setmetatable({}, {
    __index = function(_, key)
        local value = loading_redis[key]
        if value == nil and not is_loading then value = redis[key] end
        if value == nil then error(MISSING .. "'" .. tostring(key) .. "'", 2) end
        return value
    end,
    __newindex = refuse,
    __metatable = locked,
})
-- While a library is loaded there is nothing else, as in Redis.
local library_env
local library_globals = setmetatable({}, {
    __index = function(_, key)
        if key == "redis" or key == "server" then return is_loading and library_redis or globals.redis end
        if is_loading or key == "KEYS" or key == "ARGV" then return nil end
        if key == "_G" then return library_env end
        return globals[key]
    end,
})
library_env = readonly(library_globals, MISSING)

local function failed(problem)
    local is_ours = type(problem) == "userdata"
    problem = plain(problem)
    if type(problem) == "table" then
        if rawget(problem, "err") and not rawget(problem, "source") and not getmetatable(problem) then
            problem.source, problem.line = place()
        end
        return problem
    end
    problem = tostring(problem)
    local source, line = match(problem, "(user_%a+):(%d+):")
    if is_ours then
        source, line = place()
        source = source and gsub(source, "^@", "")
        -- A library's own words have their place in front of them, as what Lua says; who ended the script knows nothing of it.
        if source and not host.is_over() then problem = source .. ":" .. line .. ": " .. problem end
    end
    return {err = "ERR " .. problem, source = source and "@" .. source, line = line}
end

return {
    script_env = script_env,
    library_env = library_env,
    run = function(callback, keys, arguments, is_function)
        if is_function then
            return xpcall(function() return callback(keys, arguments) end, failed)
        end
        globals.KEYS, globals.ARGV = keys, arguments
        return xpcall(callback, failed)
    end,
    load = function(callback)
        is_loading = true
        local is_well, problem = xpcall(callback, failed)
        is_loading = false
        return is_well, problem
    end,
}
