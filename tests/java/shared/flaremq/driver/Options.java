package flaremq.driver;

import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;

/** Sets properties of RocketMQ's configuration beans by name. */
final class Options {
    private Options() {
    }

    static void apply(Object bean, JSONObject values) {
        values.forEach((name, value) -> set(bean, name, value));
    }

    private static void set(Object bean, String name, Object value) {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        // Some options take an enum or its name; the enum goes first, for it alone tells good names from bad.
        Method method = Arrays.stream(bean.getClass().getMethods())
            .filter(each -> each.getName().equals(setter) && each.getParameterCount() == 1)
            .min(Comparator.comparing(each -> each.getParameterTypes()[0].isEnum() ? 0 : 1))
            .orElseThrow(() -> new IllegalArgumentException(
                bean.getClass().getSimpleName() + " of RocketMQ " + Version.NAME + " has no option " + name));
        Object argument = convert(value, method.getParameterTypes()[0]);
        if (argument == null) {
            throw new IllegalArgumentException(bean.getClass().getSimpleName() + "." + name + " cannot be " + value);
        }
        invoke(bean, method, argument);
    }

    private static void invoke(Object bean, Method method, Object argument) {
        try {
            method.invoke(bean, argument);
        } catch (IllegalAccessException | InvocationTargetException e) {
            throw new IllegalArgumentException(method.getName() + "(" + argument + ") failed", e);
        }
    }

    /** The value as the setter wants it, or null if it does not fit; a number never becomes a smaller one. */
    private static Object convert(Object value, Class<?> type) {
        if (type == boolean.class) {
            return value instanceof Boolean ? value : null;
        }
        if (type == int.class) {
            return value instanceof Integer ? value : null;
        }
        if (type == long.class) {
            return value instanceof Integer || value instanceof Long ? ((Number) value).longValue() : null;
        }
        if (type == double.class) {
            return value instanceof Number ? ((Number) value).doubleValue() : null;
        }
        if (type == String.class) {
            return value instanceof String ? value : null;
        }
        return type.isEnum() && value instanceof String ? constant(type, (String) value) : null;
    }

    private static Object constant(Class<?> type, String name) {
        for (Object constant : type.getEnumConstants()) {
            if (((Enum<?>) constant).name().equals(name)) {
                return constant;
            }
        }
        return null;
    }
}
